// Expert parallelism in jobs of one node, contiguous layout.
#define RSH_EP_KIND local_contiguous
#define RSH_EP_REMOTE false
#define RSH_EP_BY_EXPERT false
#include "kernels/ep/entry.hpp"
