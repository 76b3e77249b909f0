#include "server/proxy/upstream/request_writer.hpp"

#include <array>
#include <charconv>

#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

void append_number(std::string& out, std::uint64_t number, int base) {
  std::array<char, 20> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr);
}

void append_framing(std::string& out, const Method& method, const BodyFraming& framing) {
  if (asks_to_close(method, framing)) out.append("Connection: close\r\n");
  if (framing.has_body && !framing.bytes) {
    out.append("Transfer-Encoding: chunked\r\n");
  } else if (framing.has_body || method.states_empty_body) {
    out.append("Content-Length: ");
    append_number(out, framing.bytes.value_or(0), 10);
    out.append("\r\n");
  }
}

void append_url(std::string& out, const Origin& origin, std::string_view path) {
  out.append(origin.is_tls ? "https://" : "http://")
      .append(origin.host)
      .append(origin.base_path)
      .append(path);
}

void append_conditions(std::string& out, const Origin& origin, const std::vector<IfPiece>& pieces) {
  out.append("If: ");
  for (const auto& [is_own_path, text] : pieces) {
    if (!is_own_path) {
      out.append(text);
      continue;
    }
    out.append("<");
    append_url(out, origin, text);
    out.append(">");
  }
  out.append("\r\n");
}

// Appends the request line, Host and the fields that are passed on; what Connection lists.
ConnectionOptions begin_request(std::string& out, const PlainTarget& target,
                                std::span<const FieldView> fields, const Origin& origin) {
  out.append(target.method.name).append(" ").append(origin.base_path).append(target.path);
  out.append(target.query).append(" HTTP/1.1\r\nHost: ").append(origin.host).append("\r\n");
  ConnectionOptions listed;
  for (const auto& [name, value] : fields) {
    if (equals_ignoring_case(name, "Connection")) (void)listed.add(value);
  }
  for (const auto& [name, value] : fields) {
    if (!passes_to_upstream(name, origin.is_claim_forwarded) || listed.lists(name)) continue;
    if (equals_ignoring_case(name, "If")) continue;
    if (target.is_alone && (could_pass_for(name, "Depth") || could_pass_for(name, "Overwrite"))) continue;
    out.append(name).append(": ").append(value).append("\r\n");
  }
  return listed;
}

}  // namespace

bool asks_to_close(const Method& method, const BodyFraming& framing) noexcept {
  return framing.has_body && !method.has_body;
}

void write_request_head(std::string& out, const PlainTarget& target, std::span<const FieldView> fields,
                        const Client& client, const Origin& origin, const BodyFraming& framing) {
  (void)begin_request(out, target, fields, origin);
  if (target.is_alone) out.append("Depth: 0\r\n");
  append_forwarding_fields(out, fields, target.host, client);
  append_framing(out, target.method, framing);
  out.append("\r\n");
}

void write_request_head(std::string& out, const Operation& operation, const http::Fields& client_fields,
                        const Client& client, const Origin& origin, const BodyFraming& framing) {
  const auto fields = views_of(client_fields);
  const auto host = client_fields.single("Host").value_or(std::string_view{});
  const auto listed = begin_request(
      out, {operation.method, operation.target.path, operation.target.query, host, operation.is_alone},
      fields, origin);
  if (operation.is_alone) out.append("Depth: 0\r\n");
  if (operation.destination) {
    if (operation.is_alone) out.append("Overwrite: F\r\n");
    // A path would do (RFC 4918, section 10.3), but not for Apache.
    out.append("Destination: ");
    append_url(out, origin, operation.destination->path);
    out.append("\r\n");
  }
  if (!operation.conditions.empty() && !listed.lists("If"))
    append_conditions(out, origin, operation.conditions);
  append_forwarding_fields(out, fields, host, client);
  append_framing(out, operation.method, framing);
  out.append("\r\n");
}

void write_chunk_line(std::string& out, std::size_t bytes, bool is_first) {
  if (!is_first) out.append("\r\n");
  append_number(out, bytes, 16);
  out.append(bytes == 0 ? "\r\n\r\n" : "\r\n");
}

}  // namespace fenceguard::proxy
