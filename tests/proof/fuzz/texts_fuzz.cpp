// What people and other programs write, and we read: URLs, addresses, durations, names, tokens, fences,
// paths, header fields of claims, JSON bodies, signatures, and what etcd and Redis Cluster answer. Each
// reader takes the text or refuses it as it says; what has one spelling only is read as that; no password is
// told.
//
// The input: a byte that says which reader, then the text.

#include <array>
#include <functional>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/wire/base64.hpp"
#include "adapters/etcd/wire/messages.hpp"
#include "adapters/redis/address.hpp"
#include "adapters/redis/wire/cluster.hpp"
#include "adapters/redis/wire/reply.hpp"
#include "guard/claim.hpp"
#include "guard/error.hpp"
#include "guard/source/url.hpp"
#include "guard/support/clock.hpp"
#include "guard/support/fence_text.hpp"
#include "guard/support/percent.hpp"
#include "server/control/json_body.hpp"
#include "server/data/claim_fields.hpp"
#include "server/data/resource_path.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::test {
namespace {

constexpr std::string_view secret = "q7-secret-x9";

// password: one that must not be told; empty: none.
void read_parts(const Url& url, std::string_view password) {
  const auto is_told = [&](std::string_view where) {
    return !password.empty() && where.find(password) != where.npos;
  };
  const auto shown = url.redacted();
  require(!is_told(shown), "a password is shown", shown);
  require(!url.hosts().empty(), "there is always a host");
  for (const auto& [name, value] : url.parameters)
    require(url.parameter(name) == value, "a parameter is lost");
  for (const auto& read : std::initializer_list<std::function<void()>>{
           [&] { (void)redis::address_of(url); }, [&] { (void)etcd::address_of(url); },
           [&] { (void)url.duration("timeout", {}, {}, std::chrono::hours{1}); },
           [&] { (void)url.number("db", 0, 15); }}) {
    try {
      read();
    } catch (const InvalidInput& error) {
      require(!is_told(error.what()), "a password is told", error.what());
    }
  }
}

void read_url(const std::string& text) {
  if (text.find(secret) != text.npos) return;  // the fuzzer has seen it
  try {
    const auto url = Url::parse(text);
    read_parts(url, {});
    // Once more with a password that stands in no message of ours.
    const auto at = text.find(url.password);
    if (url.password.empty() || at == text.npos) return;
    const auto changed = Url::parse(std::string{text}.replace(at, url.password.size(), secret));
    read_parts(changed, changed.password == secret ? secret : std::string_view{});
  } catch (const InvalidInput& error) {
    require(std::string_view{error.what()}.find(secret) == std::string_view::npos, "a password is told",
            error.what());
  }
}

void read_name(const std::string& text) {
  if (const auto resource = Resource::parse(text))
    require(resource->name() == text, "another resource", text);
  if (const auto holder = Holder::parse(text)) require(holder->id() == text, "another holder", text);
}

void read_number(const std::string& text) {
  if (const auto token = Token::parse(text))
    require(to_string(*token) == text, "two spellings of a token", text);
  if (const auto sequence = Sequence::parse(text))
    require(std::to_string(sequence->value()) == text, "two spellings of a sequence", text);
}

void read_fence(const std::string& text) {
  if (const auto fence = parse_fence(text))
    require(text_of(*fence) == text, "two spellings of a fence", text);
}

void read_percent(const std::string& text) {
  require(percent_decode(percent_encode_path(text)) == text, "encoded and decoded it is another", text);
  (void)percent_decode(text);
}

void read_time(const std::string& text) {
  try {
    require(parse_duration(text) >= std::chrono::milliseconds{0}, "a negative duration", text);
  } catch (const InvalidInput&) {
  }
}

void read_redis(const std::string& text) {
  try {
    const auto endpoint = redis::parse_endpoint(text);
    require(redis::parse_endpoint(redis::to_string(endpoint)) == endpoint, "another endpoint", text);
  } catch (const InvalidInput&) {
  }
  require(redis::slot_of(text) < redis::slot_count, "a slot that is none", text);
  redis::Reply reply;
  reply.kind = redis::Reply::Kind::error;
  reply.text = text;
  if (const auto found = redis::redirection_of(reply, {"here", 1, ""}))
    require(found->slot < redis::slot_count && found->to.port > 0 && found->to.port < 65'536,
            "redirected to no server", text);
}

void read_etcd(const std::string& text) {
  require(etcd::from_base64(etcd::to_base64(text)) == text, "another base64", text);
  (void)etcd::from_base64(text);
  (void)etcd::refusal_in(400, text);
  try {
    const auto object = etcd::parse_object(text);
    for (const auto& read : std::initializer_list<std::function<void()>>{
             [&] { (void)etcd::txn_answer(object); }, [&] { (void)etcd::range_answer(object); },
             [&] { (void)etcd::lease_answer(object); }, [&] { (void)etcd::member_answer(object); },
             [&] { (void)etcd::token_answer(object); },
             [&] { (void)etcd::watch_answer(etcd::result_in(object)); }}) {
      try {
        read();
      } catch (const std::exception&) {  // as they say
      }
    }
  } catch (const std::exception&) {
  }
}

void read_path(const std::string& text) {
  for (const std::size_t depth : {0, 1, 2}) {
    const auto found = parse_resource_path(text, depth);
    const auto* path = std::get_if<ResourcePath>(&found);
    if (path == nullptr) continue;
    require(path->path.starts_with(path->resource.name()), "fenced is what it does not name", text);
    // However it was spelled, what is stored is what was judged.
    const auto again = parse_resource_path("/" + percent_encode_path(path->path), depth);
    const auto* same = std::get_if<ResourcePath>(&again);
    require(same != nullptr && same->path == path->path && same->resource == path->resource,
            "another spelling is another resource", text);
  }
}

void read_claim(const std::string& text) {
  http::Fields fields;
  static constexpr std::array names{"Fencing-Token", "Fencing-Holder", "Fencing-Sequence", "fencing-token",
                                    "Other"};
  std::size_t tokens = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string_view name = names[static_cast<unsigned char>(text[at]) % names.size()];
    tokens += name == names[0] || name == names[3];
    fields.add(std::string{name}, text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  const auto found = parse_claim_fields(fields);
  if (std::holds_alternative<ClaimFields>(found)) require(tokens == 1, "a claim without its one token", text);
}

void read_json(const std::string& text) {
  try {
    JsonBody body{text};
    for (const auto& take : std::initializer_list<std::function<void()>>{
             [&] { (void)body.token("token"); }, [&] { (void)body.holder("holder"); },
             [&] { (void)body.integer("n"); }, [&] { (void)body.text("resource"); },
             [&] { body.require_taken(); }}) {
      try {
        take();
      } catch (const InvalidInput&) {
      }
    }
  } catch (const InvalidInput&) {
  }
}

constexpr std::array readers{read_url,   read_name, read_number, read_fence, read_percent, read_time,
                             read_redis, read_etcd, read_path,   read_claim, read_json};

}  // namespace
}  // namespace fenceguard::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fenceguard::test::Input input{data, size};
  const auto read = input.pick(fenceguard::test::readers);
  read(input.rest());
  return 0;
}
