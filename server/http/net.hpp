#pragma once

// This HTTP stands on server/net, whose names it speaks as its own.

#include "server/net/net.hpp"

namespace fenceguard::http {

using namespace net;

}  // namespace fenceguard::http
