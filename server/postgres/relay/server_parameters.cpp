#include "server/postgres/relay/server_parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr int version_min = 14;  // from then on it tells when default_transaction_read_only changes
constexpr std::array names{"server_version", "standard_conforming_strings", "client_encoding",
                           "default_transaction_read_only", "in_hot_standby"};
constexpr std::array backslash_encodings{"SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "GB18030", "UHC", "JOHAB"};

}  // namespace

void ServerParameters::take(std::string_view body) {
  const auto name = take_text(body);
  const auto value = name ? take_text(body) : std::nullopt;
  if (!value || std::ranges::find(names, *name) == names.end()) return;
  values_.insert_or_assign(std::string{*name}, std::string{*value});
}

std::string_view ServerParameters::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string_view{} : found->second;
}

std::string ServerParameters::objection() const {
  if (!is("default_transaction_read_only", "on"))
    return fatal_error("0A000",
                       "default_transaction_read_only is no longer on, which keeps this session from writing "
                       "without its claim",
                       "The session is ended. Leave the setting alone.");
  if (is("standard_conforming_strings", "off"))
    return fatal_error("0A000", "a session with standard_conforming_strings=off is not relayed",
                       "Its text would be read otherwise than by the server.");
  const auto encoding = value("client_encoding");
  if (std::ranges::find(backslash_encodings, encoding) != backslash_encodings.end())
    return fatal_error("0A000", fmt::format("a session with the encoding {} is not relayed", encoding),
                       "A backslash may be half of a character in it. Set client_encoding to UTF8.");
  return {};
}

std::string ServerParameters::objection_to_begin() const {
  int version = 0;
  const auto text = value("server_version");
  std::from_chars(text.data(), text.data() + text.size(), version);
  if (version < version_min)
    return fatal_error("0A000", fmt::format("PostgreSQL {} is too old for a guarded session; it takes {}",
                                            text, version_min));
  if (!values_.contains("default_transaction_read_only"))
    return fatal_error(
        "0A000", "the server does not tell its settings: a pooler is between",
        "The sidecar connects to PostgreSQL itself; put a pooler in front of the sidecar, in session mode.");
  return objection();
}

}  // namespace fenceguard::pgwire
