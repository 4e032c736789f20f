// Expert parallelism in jobs of several nodes, contiguous layout.
#define RSH_EP_KIND remote_contiguous
#define RSH_EP_REMOTE true
#define RSH_EP_BY_EXPERT false
#include "kernels/ep/entry.hpp"
