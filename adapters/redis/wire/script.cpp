#include "adapters/redis/wire/script.hpp"

#include <fmt/format.h>

#include <boost/uuid/detail/sha1.hpp>

namespace fenceguard::redis {

Script::Script(std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) text_ += part;
  boost::uuids::detail::sha1 digest;
  digest.process_bytes(text_.data(), text_.size());
  boost::uuids::detail::sha1::digest_type words;
  digest.get_digest(words);
  for (const auto word : words) hash_ += fmt::format("{:08x}", word);
}

}  // namespace fenceguard::redis
