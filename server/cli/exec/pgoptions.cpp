#include "server/cli/exec/pgoptions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "guard/error.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

// The same JSON in ASCII, which every driver and locale leaves as it is. REQUIRES: it is UTF-8.
std::string in_ascii(std::string_view json) {
  std::string text;
  while (!json.empty()) {
    const auto first = static_cast<unsigned char>(json.front());
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t character = bytes == 1 ? first : first & (0xffU >> (bytes + 1));
    for (const char byte : json.substr(1, bytes - 1)) {
      character = (character << 6) | (static_cast<unsigned char>(byte) & 0x3fU);
    }
    json.remove_prefix(std::min(bytes, json.size()));
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else if (character < 0x10000) {
      text += fmt::format("\\u{:04x}", character);
    } else {
      character -= 0x10000;
      text += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (character >> 10), 0xdc00 + (character & 0x3ff));
    }
  }
  return text;
}

}  // namespace

std::string pgoptions(const Claim& claim) {
  const boost::json::array claims{{{"resource", claim.resource.name()},
                                   {"token", to_string(claim.token)},
                                   {"holder", claim.holder.id()}}};
  std::string text = "-c fenceguard.session_claims=";
  for (const char byte : in_ascii(boost::json::serialize(claims))) {
    if (byte == ' ' || byte == '\\') text.push_back('\\');  // the server splits at spaces that have none
    text.push_back(byte);
  }
  return text;
}

std::string pgoptions_variable(const Claim& claim) {
  const char* present = std::getenv("PGOPTIONS");
  std::string text = "PGOPTIONS=";
  if (present != nullptr && *present != '\0') text.append(present).push_back(' ');
  return text + pgoptions(claim);
}

bool hands_over_by_pgoptions(const Settings& settings) {
  const auto word = settings.text("pgoptions");
  if (word != "on" && word != "off") throw InvalidInput("--pgoptions: on or off");
  if (word == "off" || !settings.is_given("storage")) return false;
  const auto storage = settings.url("storage");
  return storage && (storage->scheme == "postgres" || storage->scheme == "postgresql");
}

void refuse_pooler(const Settings& settings) {
  const auto storage = *settings.url("storage");
  const auto& product = products().find(storage);
  try {
    if (!product.is_pooled || !product.is_pooled(storage)) return;
  } catch (const Unavailable&) {
    return;  // told by the first call that needs it, which waits
  }
  throw InvalidInput(
      "a pooler (PgBouncer) stands before --storage, and passes no PGOPTIONS on: the command could not "
      "connect, or would have no claim. Let --storage and the command go to the server itself; or, if the "
      "command calls fenceguard.admit() with FENCING_RESOURCE, FENCING_TOKEN and FENCING_HOLDER in each "
      "transaction, give --pgoptions off");
}

}  // namespace fenceguard::cli
