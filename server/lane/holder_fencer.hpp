#pragma once

// HolderFencer: what shuts an old holder out, as the lanes see it.
//
// Thread safety: all calls may be made from any thread.

#include "guard/error.hpp"
#include "guard/resource.hpp"
#include "guard/token.hpp"

namespace fenceguard {

class HolderFencer {
 public:
  virtual ~HolderFencer() = default;

  // Shuts out all holders of resource up to old_token, because new_token takes over (or, where both are
  // equal, because the fence was closed). Returns at once; done is called once, on any thread: ok, and the
  // take-over goes on; a fault, and it does not. REQUIRES: not called again for a resource before done.
  virtual void cut_off(const Resource& resource, Token old_token, Token new_token, Done<bool> done) = 0;

  // Ends what is under way, which is answered with a fault, and takes no more.
  virtual void stop() = 0;
};

}  // namespace fenceguard
