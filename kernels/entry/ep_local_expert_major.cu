// Expert parallelism in jobs of one node, expert-major layout.
#define RSH_EP_KIND local_expert_major
#define RSH_EP_REMOTE false
#define RSH_EP_BY_EXPERT true
#include "kernels/ep/entry.hpp"
