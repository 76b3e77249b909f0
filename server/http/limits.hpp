#pragma once

// Limits: what a server takes of each connection, in bytes and in time. A value.

#include <chrono>
#include <cstddef>

namespace fenceguard::http {

struct Limits {
  static constexpr std::size_t no_bound = ~std::size_t{0};

  std::size_t header_bytes_max = 16 * 1024;
  std::size_t body_bytes_max = 8 * 1024 * 1024;  // no_bound is for streams only
  std::size_t connections_max = 10'000;
  // Deadlines in total, not per byte.
  std::chrono::milliseconds idle_max{60'000};    // from one answer to the first byte of the next request
  std::chrono::milliseconds header_max{10'000};  // from the first byte to the end of the header block; before
                                                 // that, as long again for the handshake of TLS
  // That a client is waited for until its body is there. A stream's is for the first MiB; what is longer has
  // one second more for each 64 KiB that has come.
  std::chrono::milliseconds body_max{60'000};
  // For the client to take the answer; of a streamed answer, each piece.
  std::chrono::milliseconds write_max{60'000};
};

}  // namespace fenceguard::http
