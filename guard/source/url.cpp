#include "guard/source/url.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "guard/error.hpp"
#include "guard/support/clock.hpp"
#include "guard/support/percent.hpp"
#include "guard/token.hpp"

namespace fenceguard {
namespace {

std::string text_of(std::chrono::milliseconds duration) {
  const auto ms = duration.count();
  if (ms % 3'600'000 == 0) return fmt::format("{} hours", ms / 3'600'000);
  if (ms % 60'000 == 0) return fmt::format("{}m", ms / 60'000);
  return ms % 1'000 == 0 ? fmt::format("{}s", ms / 1'000) : fmt::format("{}ms", ms);
}

std::string decoded(std::string_view text) {
  auto result = percent_decode(text);
  if (!result) throw InvalidInput("a URL has a '%' that two hexadecimal digits must follow");
  // A library in C would read the text only up to here.
  if (result->find('\0') != std::string::npos) throw InvalidInput("a URL holds no NUL");
  return *result;
}

// A bare '/' or '?' in a password ends the authority early. What follows would be taken, and printed, for a
// host, a path or a parameter, so no '@' is allowed there. REQUIRES: text follows '//'.
void refuse_password_outside_authority(std::string_view text) {
  const auto authority_end = text.find_first_of("/?");
  if (authority_end == std::string_view::npos || text.find('@', authority_end) == std::string_view::npos)
    return;
  throw InvalidInput(
      "in a URL's password '/', '?' and '@' are written %2F, %3F and %40, as is an '@' after the host");
}

void parse_authority(Url& url, std::string_view text) {
  const auto at = text.rfind('@');
  if (at != std::string_view::npos) {
    const auto credentials = text.substr(0, at);
    const auto colon = credentials.find(':');
    url.user = decoded(credentials.substr(0, colon));
    if (colon != std::string_view::npos) url.password = decoded(credentials.substr(colon + 1));
    text.remove_prefix(at + 1);
  }
  url.authority = text;
}

// The value of a parameter, in which %s, the place for a name in a pattern, stands for itself: no escape
// begins so.
std::string decoded_value(std::string_view text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    escaped += text[i];
    if (text.substr(i, 2) == "%s") escaped += "25";
  }
  return decoded(escaped);
}

void parse_parameters(Url& url, std::string_view text) {
  while (!text.empty()) {
    const auto pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    if (pair.empty() || equals == 0 || equals == std::string_view::npos) {
      throw InvalidInput("a URL's parameters read name=value, with '&' between them");
    }
    if (!url.parameters.emplace(decoded(pair.substr(0, equals)), decoded_value(pair.substr(equals + 1)))
             .second) {
      throw InvalidInput(fmt::format("the URL's parameter '{}' is given twice", pair.substr(0, equals)));
    }
  }
}

}  // namespace

Url Url::parse(std::string_view text) {
  const auto colon = text.find(':');
  const auto is_scheme_char = [](unsigned char c) {
    return std::isalnum(c) || c == '+' || c == '-' || c == '.';
  };
  if (colon == std::string_view::npos || colon == 0 ||
      !std::all_of(text.begin(), text.begin() + colon, is_scheme_char)) {
    throw InvalidInput("a URL begins with its scheme and a colon, such as sqlite:fenceguard.db");
  }
  Url url;
  for (const char c : text.substr(0, colon))
    url.scheme += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  auto rest = text.substr(colon + 1);
  const bool has_authority = rest.substr(0, 2) == "//";
  if (has_authority) refuse_password_outside_authority(rest.substr(2));
  const auto question = rest.find('?');
  if (question != std::string_view::npos) {
    parse_parameters(url, rest.substr(question + 1));
    rest = rest.substr(0, question);
  }
  if (has_authority) {
    rest.remove_prefix(2);
    const auto slash = std::min(rest.find('/'), rest.size());
    parse_authority(url, rest.substr(0, slash));
    rest.remove_prefix(slash);
  }
  url.path = decoded(rest);
  return url;
}

std::string Url::redacted() const {
  std::string text = scheme + ":";
  if (!authority.empty() || !user.empty()) {
    text += "//" + user + (password.empty() ? "" : ":***") + (user.empty() && password.empty() ? "" : "@") +
            authority;
  }
  text += path;
  char separator = '?';
  for (const auto& [name, value] : parameters) {
    const bool is_secret =
        name.find("password") != std::string::npos || name.find("secret") != std::string::npos;
    text += fmt::format("{}{}={}", separator, name, is_secret ? "***" : value);
    separator = '&';
  }
  return text;
}

void Url::require_known_parameters(std::span<const std::string_view> known) const {
  for (const auto& [name, value] : parameters) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto list = known.size() == 0 ? std::string{"it takes none"}
                                        : fmt::format("known are: {}", fmt::join(known, ", "));
    throw InvalidInput(fmt::format("unknown parameter '{}' in a {}: URL; {}", name, scheme, list));
  }
}

std::optional<std::string> Url::parameter(std::string_view name) const {
  const auto found = parameters.find(std::string{name});
  if (found == parameters.end()) return std::nullopt;
  return found->second;
}

std::chrono::milliseconds Url::duration(std::string_view name, std::chrono::milliseconds otherwise,
                                        std::chrono::milliseconds min, std::chrono::milliseconds max) const {
  const auto text = parameter(name);
  if (!text) return otherwise;
  const auto value = parse_duration(*text);
  if (value >= min && value <= max) return value;
  throw InvalidInput(fmt::format("?{} of {} is {} to {}, and this is '{}'", name, kind(), text_of(min),
                                 text_of(max), *text));
}

bool Url::flag(std::string_view name, bool otherwise) const {
  const auto text = parameter(name);
  if (!text) return otherwise;
  if (*text == "0" || *text == "1") return *text == "1";
  throw InvalidInput(fmt::format("?{} of {} is 0 or 1, and this is '{}'", name, kind(), *text));
}

std::int64_t Url::number(std::string_view name, std::int64_t otherwise, std::int64_t max) const {
  const auto text = parameter(name);
  if (!text) return otherwise;
  if (const auto value = parse_decimal(*text); value && *value <= max) return *value;
  throw InvalidInput(fmt::format("?{} of {} is 0 to {}, and this is '{}'", name, kind(), max, *text));
}

std::vector<std::string_view> Url::hosts() const {
  std::vector<std::string_view> all;
  std::string_view rest = authority;
  for (;;) {
    const auto comma = rest.find(',');
    all.push_back(rest.substr(0, comma));
    if (comma == rest.npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

std::string Url::kind() const {
  const bool is_vowel = std::string_view{"aeiou"}.find(scheme.front()) != std::string_view::npos;
  return fmt::format("{} {}: URL", is_vowel || scheme == "sqlite" ? "an" : "a", scheme);
}

}  // namespace fenceguard
