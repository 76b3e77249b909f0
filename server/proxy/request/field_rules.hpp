#pragma once

// Which header fields a proxy passes on (RFC 9110, section 7.6.1), and what it adds to them.
//
// Pure; safe to use from any thread.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/wire/message.hpp"
#include "server/http/wire/plain_request.hpp"

namespace fenceguard::proxy {

using http::FieldView;
// Of all fields, in their order. fields outlives them.
[[nodiscard]] std::vector<FieldView> views_of(const http::Fields& fields);

// The names that Connection lists, which are for the next hop only. Each field of a message is looked for
// among them, so they are few.
class ConnectionOptions {
 public:
  static constexpr std::size_t names_max = 64;

  // Takes the value of one Connection field. False: there are too many.
  [[nodiscard]] bool add(std::string_view value);
  [[nodiscard]] bool lists(std::string_view name) const noexcept;
  [[nodiscard]] bool closes() const noexcept;

 private:
  std::vector<std::string_view> names_;
};

// Fields that are for the next hop only, wherever they are, and those of the framing, which is made anew.
[[nodiscard]] bool is_hop_by_hop(std::string_view name) noexcept;

// Whether a client's field goes on to the upstream. is_claim_forwarded: fields of claims do.
[[nodiscard]] bool passes_to_upstream(std::string_view name, bool is_claim_forwarded) noexcept;

// Whether a field of the upstream's answer goes on to the client. Only the guard speaks of fences.
[[nodiscard]] bool passes_to_client(std::string_view name) noexcept;

// Why a client's fields cannot be passed on: a Connection that takes away what a request is judged or read
// by, or lists too many fields, or a Forwarded whose open quote would swallow what is added to it. Empty:
// they can.
[[nodiscard]] std::string_view objection_to(const http::Fields& fields);

// The client, as the upstream is told.
struct Client {
  std::string_view peer;  // address without port, or 'unknown'
  bool is_tls = false;
};

// Appends Via, X-Forwarded-For, -Proto, -Host, X-Real-IP and Forwarded (RFC 7239) as lines: what earlier
// proxies said in the lists stays in front. host: the value of the only Host; empty where there is none.
void append_forwarding_fields(std::string& out, std::span<const FieldView> fields, std::string_view host,
                              const Client& client);
void append_forwarding_fields(std::string& out, const http::Fields& fields, const Client& client);

}  // namespace fenceguard::proxy
