// Expert parallelism in jobs of several nodes, expert-major layout.
#define RSH_EP_KIND remote_expert_major
#define RSH_EP_REMOTE true
#define RSH_EP_BY_EXPERT true
#include "kernels/ep/entry.hpp"
