#include "server/proxy/request/field_rules.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

bool is_one_of(std::string_view name, std::span<const std::string_view> names) noexcept {
  return std::any_of(names.begin(), names.end(), [&](auto known) { return could_pass_for(name, known); });
}

// No server has two ways to read it.
bool is_one_spelling(std::string_view name) noexcept {
  return std::all_of(name.begin(), name.end(), [](char c) { return c == '-' || folded(c) != '-'; });
}

// Written anew for the upstream, or answered here. The overrides of method and URL let a request be
// another one than was judged, and Proxy becomes the variable that names the proxy of what a CGI program
// asks.
constexpr std::array<std::string_view, 18> not_for_upstream = {"Host",
                                                               "Expect",
                                                               "Via",
                                                               "Forwarded",
                                                               "X-Forwarded-For",
                                                               "X-Forwarded-Proto",
                                                               "X-Forwarded-Host",
                                                               "X-HTTP-Method-Override",
                                                               "X-HTTP-Method",
                                                               "X-HTTP-Verb",
                                                               "X-Method",
                                                               "X-Method-Override",
                                                               "X-Original-Method",
                                                               "X-Original-URL",
                                                               "X-Real-IP",
                                                               "X-Rewrite-URL",
                                                               "Destination",
                                                               "Proxy"};

// Appends 'NAME: earlier values, ' and leaves the line open.
void begin_list(std::string& out, std::string_view name, std::span<const FieldView> fields) {
  out.append(name).append(": ");
  for (const auto& [field, value] : fields) {
    if (equals_ignoring_case(field, name) && !value.empty()) out.append(value).append(", ");
  }
}

bool has_whole_quotes(std::string_view value) noexcept {
  bool is_quoted = false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (is_quoted && value[i] == '\\') {
      ++i;
    } else if (value[i] == '"') {
      is_quoted = !is_quoted;
    }
  }
  return !is_quoted;
}

void append_forwarded(std::string& out, std::string_view host, const Client& client) {
  const bool is_ipv6 = client.peer.find(':') != std::string_view::npos;
  out.append("for=").append(is_ipv6 ? "\"[" : "").append(client.peer).append(is_ipv6 ? "]\"" : "");
  // A host that would need escapes in quotes is none.
  if (!host.empty() && host.find_first_of("\"\\") == std::string_view::npos)
    out.append(";host=\"").append(host).append("\"");
  out.append(client.is_tls ? ";proto=https" : ";proto=http");
}

}  // namespace

std::vector<FieldView> views_of(const http::Fields& fields) {
  std::vector<FieldView> views;
  views.reserve(16);
  for (const auto& [name, value] : fields) views.push_back({name, value});
  return views;
}

bool ConnectionOptions::add(std::string_view value) {
  bool is_within = true;
  for_each_element(value, [&](std::string_view name) {
    is_within = names_.size() < names_max;
    if (is_within) names_.push_back(name);
  });
  return is_within;
}

bool ConnectionOptions::lists(std::string_view name) const noexcept {
  return std::any_of(names_.begin(), names_.end(), [&](auto listed) { return could_pass_for(name, listed); });
}

bool ConnectionOptions::closes() const noexcept {
  return std::any_of(names_.begin(), names_.end(),
                     [](auto listed) { return equals_ignoring_case(listed, "close"); });
}

bool is_hop_by_hop(std::string_view name) noexcept {
  if (name.empty()) return true;
  switch (folded(name.front())) {
    case 'c':
      return is_one_of(name, std::array<std::string_view, 2>{"Connection", "Content-Length"});
    case 'h':
      return could_pass_for(name, "HTTP2-Settings");
    case 'k':
      return could_pass_for(name, "Keep-Alive");
    case 'p':
      return is_one_of(name, std::array<std::string_view, 3>{"Proxy-Connection", "Proxy-Authenticate",
                                                             "Proxy-Authorization"});
    case 't':
      return is_one_of(name, std::array<std::string_view, 3>{"TE", "Trailer", "Transfer-Encoding"});
    case 'u':
      return could_pass_for(name, "Upgrade");
    default:
      return false;
  }
}

bool passes_to_upstream(std::string_view name, bool is_claim_forwarded) noexcept {
  if (is_hop_by_hop(name)) return false;
  if (could_begin_with(name, "Fencing-")) return is_claim_forwarded && is_one_spelling(name);
  switch (folded(name.front())) {
    case 'd':
    case 'e':
    case 'f':
    case 'h':
    case 'p':
    case 'v':
    case 'x':
      return !is_one_of(name, not_for_upstream);
    default:
      return true;
  }
}

bool passes_to_client(std::string_view name) noexcept {
  // The server writes Date itself.
  return !is_hop_by_hop(name) && !could_begin_with(name, "Fencing-") && !could_pass_for(name, "Date");
}

std::string_view objection_to(const http::Fields& fields) {
  constexpr std::array<std::string_view, 4> never_for_one_hop = {"Authorization", "Content-Length", "Host",
                                                                 "Transfer-Encoding"};
  std::size_t options = 0;
  for (const auto& [name, value] : fields) {
    bool is_odd = false;
    if (equals_ignoring_case(name, "Connection")) {
      for_each_element(value, [&](std::string_view listed) {
        ++options;
        is_odd = is_odd || could_begin_with(listed, "Fencing-") || is_one_of(listed, never_for_one_hop);
      });
      if (is_odd) return "Connection lists a field that is not for the next hop only.";
      if (options > ConnectionOptions::names_max) return "Connection lists more than 64 fields.";
    }
    if (equals_ignoring_case(name, "Forwarded") && !has_whole_quotes(value))
      return "Forwarded has a quote that does not end.";
  }
  return {};
}

void append_forwarding_fields(std::string& out, const http::Fields& fields, const Client& client) {
  append_forwarding_fields(out, views_of(fields), fields.single("Host").value_or(std::string_view{}), client);
}

void append_forwarding_fields(std::string& out, std::span<const FieldView> fields, std::string_view host,
                              const Client& client) {
  begin_list(out, "Via", fields);
  out.append("1.1 fenceguard\r\n");
  begin_list(out, "X-Forwarded-For", fields);
  out.append(client.peer);
  if (client.peer != "unknown") out.append("\r\nX-Real-IP: ").append(client.peer);
  out.append("\r\nX-Forwarded-Proto: ").append(client.is_tls ? "https" : "http");
  if (!host.empty()) out.append("\r\nX-Forwarded-Host: ").append(host);
  out.append("\r\n");
  begin_list(out, "Forwarded", fields);
  append_forwarded(out, host, client);
  out.append("\r\n");
}

}  // namespace fenceguard::proxy
