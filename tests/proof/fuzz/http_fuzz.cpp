// HTTP as clients and upstreams may spell it. What the fast path takes for plain, the strict reader reads
// just so; and nothing changes with the pieces in which bytes arrive.
//
// The input: a byte that says what is read, one that says how it is cut, then the bytes.

#include <algorithm>

#include "server/http/wire/chunk_reader.hpp"
#include "server/http/wire/plain_request.hpp"
#include "server/http/wire/request_reader.hpp"
#include "server/proxy/upstream/response_parser.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::test {
namespace {

constexpr std::size_t header_bytes_max = 4096;
constexpr std::size_t body_bytes_max = 4096;

// Where a header block of data ends, looked at in steps; nothing where it does not, or is malformed.
std::optional<std::string_view> head_of(std::string_view data, std::size_t step, bool& is_malformed) {
  http::HeadScanner scanner;
  for (std::size_t seen = 0; seen < data.size();) {
    seen = std::min(data.size(), seen + step);
    const auto state = scanner.scan(data.substr(0, seen));
    is_malformed = state == http::HeadScanner::State::malformed;
    if (is_malformed) return std::nullopt;
    if (state == http::HeadScanner::State::complete)
      return data.substr(scanner.skip(), scanner.end() - scanner.skip());
  }
  return std::nullopt;
}

std::optional<std::string_view> head_of(std::string_view data, std::size_t step) {
  bool whole = false, pieces = false;
  const auto head = head_of(data, data.size() + 1, whole);
  const auto in_pieces = head_of(data, step, pieces);
  // What is wrong behind the head may have come with it.
  if (in_pieces && whole) return in_pieces;
  require(whole == pieces && head == in_pieces, "another head in pieces", data);
  return head;
}

void read_request(std::string_view data, std::size_t step) {
  const auto head = head_of(data, step);
  http::RequestReader reader{body_bytes_max};
  const bool is_read = head && !reader.read_head(*head);
  http::PlainRequest plain;
  if (!plain.read(data, header_bytes_max)) return;
  require(is_read, "plain is what is no request", data);
  const auto& request = reader.request();
  require(request.method == plain.method, "another method", data);
  require(request.target == std::string{plain.path} + std::string{plain.query}, "another target", data);
  require(reader.wants_keep_alive() && !reader.is_chunked() && !reader.is_http_1_0() &&
              !reader.expects_continue(),
          "plain is what ends its connection, has chunks or waits", data);
  require(reader.body_bytes() == plain.body.size(), "a body of another length", data);
  require(plain.bytes <= data.size(), "more than there is", data);
  require(request.fields.single("Host") == plain.host, "another host", data);
  auto field = request.fields.begin();
  for (const auto& [name, value] : plain.fields()) {
    require(field != request.fields.end() && field->first == name && field->second == value, "another field",
            data);
    ++field;
  }
  require(field == request.fields.end(), "a field is left out", data);
  http::RequestReader taken{body_bytes_max};
  taken.take_head(plain);
  require(taken.request().method == request.method && taken.request().target == request.target &&
              std::ranges::equal(taken.request().fields, request.fields),
          "taken over as another request", data);
  require(taken.wants_keep_alive() && !taken.is_chunked() && !taken.is_http_1_0() &&
              !taken.expects_continue() && taken.body_bytes() == reader.body_bytes(),
          "taken over with another framing", data);
}

// Feeds reader what data holds, step bytes more at a time, and gives it again what it did not take.
template <class Reader>
std::string feed(Reader& reader, std::string_view data, std::size_t step) {
  std::string body;
  std::size_t taken = 0;
  for (std::size_t seen = 0; seen < data.size();) {
    seen = std::min(data.size(), seen + step);
    for (;;) {
      const auto used = reader.read(data.substr(taken, seen - taken), body);
      require(used <= seen - taken, "more was used than there is", data);
      taken += used;
      if (used == 0) break;
    }
  }
  return body;
}

void read_chunks(std::string_view data, std::size_t step) {
  http::ChunkReader whole{body_bytes_max}, pieces{body_bytes_max};
  const auto body = feed(whole, data, data.size() + 1), in_pieces = feed(pieces, data, step);
  require(whole.is_complete() == pieces.is_complete(), "complete in one way alone", data);
  require(whole.refusal().has_value() == pieces.refusal().has_value(), "refused in one way alone", data);
  require(body == in_pieces, "another body in pieces", data);
  require(body.size() <= body_bytes_max, "a body above the limit", data);
}

void read_answer(std::string_view data, std::size_t step) {
  const auto head = head_of(data, step);
  if (!head) return;
  const auto found = proxy::read_answer_head(*head);
  if (!found) return;
  require(found->status >= 100 && found->status < 600, "a status that is none", data);
  require(!(found->is_chunked && found->body_bytes), "two framings", data);
  const auto rest = data.substr(static_cast<std::size_t>(head->data() - data.data()) + head->size());
  for (const bool answers_head : {false, true}) {
    proxy::ResponseBody whole{*found, answers_head}, pieces{*found, answers_head};
    const auto body = feed(whole, rest, rest.size() + 1), in_pieces = feed(pieces, rest, step);
    require(
        whole.is_complete() == pieces.is_complete() && whole.is_odd() == pieces.is_odd() && body == in_pieces,
        "another answer in pieces", data);
    require(!(whole.is_complete() && whole.is_odd()), "complete and odd", data);
  }
}

}  // namespace
}  // namespace fenceguard::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fenceguard::test;
  Input input{data, size};
  const auto what = input.below(3);
  const auto step = 1 + input.below(64);
  const auto bytes = input.rest();
  if (what == 0) read_request(bytes, step);
  if (what == 1) read_chunks(bytes, step);
  if (what == 2) read_answer(bytes, step);
  return 0;
}
