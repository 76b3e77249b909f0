#include "server/postgres/relay/startup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "guard/error.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

namespace json = boost::json;

constexpr std::uint32_t cancel_code = 80'877'102, tls_code = 80'877'103, gss_code = 80'877'104;
constexpr std::string_view claims_name = "fenceguard.session_claims", begin_name = "fenceguard.begin";
constexpr std::size_t claims_bytes_max = 16'384;

bool is_space(char c) noexcept {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// A word of 'options', as the server splits it (pg_split_opts), and the text it was read from.
struct Word {
  std::string value;
  std::size_t begin = 0, end = 0;
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < text.size();) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    Word word{.value = {}, .begin = at};
    for (; at < text.size() && !is_space(text[at]); ++at) {
      if (text[at] == '\\' && ++at == text.size()) break;
      word.value.push_back(text[at]);
    }
    word.end = std::min(at, text.size());
    words.push_back(std::move(word));
  }
  return words;
}

// The server takes '-' for '_' in a name that was given so.
std::optional<std::string> value_in(std::string_view assignment, std::string_view wanted) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  std::string name{assignment.substr(0, equals)};
  std::ranges::transform(name, name.begin(), [](char c) {
    if (c == '-') return '_';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (name != wanted) return std::nullopt;
  return std::string{assignment.substr(equals + 1)};
}

// Takes it out of 'options'; of several the last counts, as at the server.
std::optional<std::string> take_out(std::string& options, std::string_view name) {
  std::optional<std::string> found;
  std::string rest;
  std::size_t kept = 0;
  const auto words = words_of(options);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    std::optional<std::string> value;
    auto end = word.end;
    if (word.value == "-c" && i + 1 < words.size()) {
      value = value_in(words[i + 1].value, name);
      end = words[++i].end;
    } else if (word.value.starts_with("-c") || word.value.starts_with("--")) {
      value = value_in(std::string_view{word.value}.substr(2), name);
    }
    if (!value) continue;
    found = std::move(value);
    rest.append(options, kept, word.begin - kept);
    kept = end;
  }
  if (found) options = rest.append(options, kept);
  return found;
}

std::optional<std::string> take_setting(Startup& startup, std::string_view name) {
  std::optional<std::string> found;
  for (auto& [parameter, value] : startup.parameters)
    if (parameter == "options") {
      if (auto taken = take_out(value, name)) found = std::move(taken);
    }
  // After 'options' the server looks at the parameters by their names.
  std::erase_if(startup.parameters, [&](const auto& parameter) {
    const auto value = value_in(parameter.first + "=" + parameter.second, name);
    if (value) found = value;
    return value.has_value();
  });
  return found;
}

std::string text_of(const json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  if (value == nullptr) return {};
  if (value->is_string()) return std::string{value->get_string()};
  if (value->is_int64()) return std::to_string(value->get_int64());
  throw InvalidInput(fmt::format("the '{}' of a claim is a text", name));
}

SignedClaim claim_of(const json::value& value) {
  const auto* object = value.if_object();
  if (object == nullptr) throw InvalidInput("it is an array of objects");
  for (const auto& member : *object) {
    const std::string_view key{member.key()};
    if (key == "sequence")
      throw InvalidInput("a session's claim has no sequence, which counts single writes");
    if (key != "resource" && key != "token" && key != "holder" && key != "signature")
      throw InvalidInput("a claim has a resource, a token, a holder and perhaps a signature");
  }
  const auto resource = Resource::parse(text_of(*object, "resource"));
  if (!resource) throw InvalidInput("a claim in it names no resource");
  const auto token = Token::parse(text_of(*object, "token"));
  if (!token) throw InvalidInput("a claim in it has no token");
  return {.claim = {*resource, *token, Holder{text_of(*object, "holder")}, std::nullopt},
          .signature = text_of(*object, "signature")};
}

std::string json_text_of(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t character = bytes == 1 ? first : first & (0xffU >> (bytes + 1));
    for (const char byte : text.substr(1, bytes - 1))
      character = (character << 6) | (static_cast<unsigned char>(byte) & 0x3fU);
    text.remove_prefix(std::min(bytes, text.size()));
    if (character >= 0x10000) {
      character -= 0x10000;
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (character >> 10), 0xdc00 + (character & 0x3ff));
    } else if (character >= 0x80) {
      quoted += fmt::format("\\u{:04x}", character);
    } else {
      if (character == '"' || character == '\\') quoted.push_back('\\');
      quoted.push_back(static_cast<char>(character));
    }
  }
  return quoted + '"';
}

}  // namespace

std::string write_claims(const std::vector<SignedClaim>& claims) {
  std::string list;
  for (const auto& [claim, signature] : claims) {
    list += list.empty() ? '[' : ',';
    list += fmt::format(R"({{"resource":{},"token":"{}","holder":{}}})", json_text_of(claim.resource.name()),
                        to_string(claim.token), json_text_of(claim.holder.id()));
  }
  return list + ']';
}

const std::string* Startup::find(std::string_view name) const noexcept {
  const auto found =
      std::ranges::find(parameters, name, [](const auto& p) -> std::string_view { return p.first; });
  return found == parameters.end() ? nullptr : &found->second;
}

// Behind all others: of two the server takes the last.
void Startup::set(std::string_view name, std::string_view value) {
  std::erase_if(parameters, [name](const auto& parameter) { return parameter.first == name; });
  parameters.emplace_back(name, value);
}

std::string Startup::encode() const {
  std::string body;
  add_number(body, version);
  for (const auto& [name, value] : parameters) {
    add_text(body, name);
    add_text(body, value);
  }
  body.push_back('\0');
  std::string message;
  add_number(message, static_cast<std::uint32_t>(body.size() + 4));
  return message + body;
}

Startup read_startup(std::string_view bytes) {
  Startup startup;
  if (bytes.size() < 4) return startup;
  startup.size = read_number(bytes);
  startup.kind = Startup::Kind::malformed;
  if (startup.size < 8 || startup.size > startup_bytes_max) return startup;
  if (bytes.size() < startup.size) {
    startup.kind = Startup::Kind::part;
    return startup;
  }
  startup.version = read_number(bytes.substr(4));
  auto body = bytes.substr(8, startup.size - 8);
  if (startup.version == cancel_code) {
    if (startup.size >= 16) startup.kind = Startup::Kind::cancel;
    return startup;
  }
  if (startup.version == tls_code || startup.version == gss_code) {
    if (startup.size == 8)
      startup.kind = startup.version == tls_code ? Startup::Kind::tls : Startup::Kind::gss;
    return startup;
  }
  while (!body.empty() && body.front() != '\0') {
    const auto name = take_text(body);
    const auto value = name ? take_text(body) : std::nullopt;
    if (!value) return startup;
    startup.parameters.emplace_back(*name, *value);
  }
  if (body.size() == 1 && startup.version >> 16 == 3) startup.kind = Startup::Kind::start;
  return startup;
}

std::optional<std::string> take_claims(Startup& startup) {
  return take_setting(startup, claims_name);
}

std::optional<std::string> take_begin(Startup& startup) {
  return take_setting(startup, begin_name);
}

std::vector<SignedClaim> read_claims(std::string_view text) {
  if (text.size() > claims_bytes_max)
    throw InvalidInput(fmt::format("longer than {} bytes", claims_bytes_max));
  json::error_code error;
  const auto value = json::parse(text, error);
  if (error) throw InvalidInput("it is no JSON");
  const auto* array = value.if_array();
  if (array == nullptr || array->empty()) throw InvalidInput("it is an array of claims, at least one");
  std::vector<SignedClaim> claims;
  for (const auto& entry : *array) {
    claims.push_back(claim_of(entry));
    const auto& resource = claims.back().claim.resource;
    if (std::ranges::count(claims, resource, [](const auto& c) { return c.claim.resource; }) > 1)
      throw InvalidInput(fmt::format("it has two claims to '{}'", resource.name()));
  }
  return claims;
}

}  // namespace fenceguard::pgwire
