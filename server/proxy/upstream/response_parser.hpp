#pragma once

// What bytes of the upstream make an answer. As strict as with requests: what two readers could understand
// differently is odd, proves nothing about a write, and ends the connection. Pure: bytes in, values out.
//
// Not thread-safe.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/wire/chunk_reader.hpp"
#include "server/proxy/request/field_names.hpp"
#include "server/proxy/request/field_rules.hpp"

namespace fenceguard::proxy {

inline constexpr std::size_t read_bytes_min = 16 * 1024;  // room that each read of an answer finds at least

struct ResponseHead {
  unsigned status = 0;
  std::vector<FieldView> fields;            // in the block that was read
  ConnectionOptions connection;             // likewise
  std::optional<std::uint64_t> body_bytes;  // as Content-Length says
  bool is_chunked = false;
  bool is_http_1_0 = false;
  std::optional<std::chrono::seconds> idle_max;  // as Keep-Alive says

  [[nodiscard]] bool is_interim() const noexcept { return status < 200; }
  // Calls visit(name, value) for each field that goes on to the client, as it goes on.
  template <class Visit>
  void for_each_passed(bool drops_cache_rules, Visit visit) const {
    for (const auto& [name, value] : fields) {
      if (!passes_to_client(name) || connection.lists(name)) continue;
      if (drops_cache_rules && could_pass_for(name, "Cache-Control")) continue;
      visit(name, value);
    }
    visit("Via", "1.1 fenceguard");
  }
};

// Reads a whole header block, its empty line included, whose lines end as http::HeadScanner wants them to.
// Nothing: it is odd. block outlives what is returned.
[[nodiscard]] std::optional<ResponseHead> read_answer_head(std::string_view block);
// The same into head, whose memory is used again. False: it is odd.
[[nodiscard]] bool read_answer_head(std::string_view block, ResponseHead& head);

// The body of one answer, undone of its framing.
class ResponseBody {
 public:
  // answers_head: the request was a HEAD.
  ResponseBody(const ResponseHead& head, bool answers_head);

  // Appends to out what data holds of the body, and says how many bytes of data were used. What was not used
  // must be given again with more behind it, or belongs to no body.
  [[nodiscard]] std::size_t read(std::string_view data, std::string& out);
  // The connection ended in order.
  void end();

  [[nodiscard]] bool is_complete() const noexcept { return state_ == State::complete; }
  [[nodiscard]] bool is_odd() const noexcept { return state_ == State::odd; }
  // What is still to come, where that is known.
  [[nodiscard]] std::optional<std::uint64_t> bytes_left() const noexcept;
  [[nodiscard]] bool lasts_to_end() const noexcept { return framing_ == Framing::to_end; }

 private:
  enum class Framing { none, sized, chunked, to_end };
  enum class State { open, complete, odd };

  [[nodiscard]] std::size_t read_chunks(std::string_view data, std::string& out);

  Framing framing_;
  State state_ = State::open;
  std::uint64_t bytes_left_ = 0;
  std::optional<http::ChunkReader> chunks_;
};

}  // namespace fenceguard::proxy
