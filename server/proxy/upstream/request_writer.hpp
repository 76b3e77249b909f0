#pragma once

// How an operation becomes a request to the upstream: written anew from what was judged, never passed on as
// it came.
//
// Pure; safe to use from any thread.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "server/proxy/request/field_rules.hpp"
#include "server/proxy/request/operation.hpp"

namespace fenceguard::proxy {

// The upstream, as requests name it.
struct Origin {
  std::string host;       // the value of Host
  std::string base_path;  // in front of every path, encoded; empty or begins with a slash and ends without
  bool is_claim_forwarded = false;
  bool is_tls = false;
};

struct BodyFraming {
  bool has_body = false;
  std::optional<std::uint64_t> bytes;  // nothing: in chunks
};

// Whether the upstream is asked to close after its answer.
[[nodiscard]] bool asks_to_close(const Method& method, const BodyFraming& framing) noexcept;

// What the head of a request is written from where there is neither a destination nor a condition.
struct PlainTarget {
  const Method& method;
  std::string_view path;
  std::string_view query;
  std::string_view host;  // the client's Host
  bool is_alone = false;
};

// As the next for an operation that is no more than target; fields as the client sent them.
void write_request_head(std::string& out, const PlainTarget& target, std::span<const FieldView> fields,
                        const Client& client, const Origin& origin, const BodyFraming& framing);

// Appends request line and header block, the empty line included. fields: as the client sent them.
void write_request_head(std::string& out, const Operation& operation, const http::Fields& fields,
                        const Client& client, const Origin& origin, const BodyFraming& framing);

// Appends the line that begins a chunk, with the end of the one before it. bytes = 0: the end of the body.
void write_chunk_line(std::string& out, std::size_t bytes, bool is_first);

}  // namespace fenceguard::proxy
