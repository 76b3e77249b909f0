#pragma once

// Rejection: why bytes are no request.

#include <string_view>

namespace fenceguard::http {

struct Rejection {
  unsigned status;       // of the answer
  std::string_view why;  // a sentence for people; a literal
};

}  // namespace fenceguard::http
