#include "server/proxy/write_ending.hpp"

namespace fenceguard::proxy {
namespace {

enum class Word { done, not_done, doubtful };

// What a complete answer says of the write. 303 is how a POST is answered that was carried out. 301 and 302
// are so with old servers, and a server that moved answers them, too; of 207 each part may have failed, and
// after 500 a part may have taken effect: none of these uses up a sequence, nor leaves it free.
Word word_of(unsigned status, bool has_sequence) noexcept {
  if (status < 300) return status == 207 && has_sequence ? Word::doubtful : Word::done;
  switch (status) {
    case 303:
      return Word::done;
    case 301:
    case 302:
      return has_sequence ? Word::doubtful : Word::done;
    case 500:
      return has_sequence ? Word::doubtful : Word::not_done;
    case 300:
    case 304:
    case 305:
    case 307:
    case 308:
      return Word::not_done;
    default:
      return status < 400 ? Word::doubtful : Word::not_done;
  }
}

}  // namespace

bool proves_end(unsigned status) noexcept {
  switch (status) {
    case 202:
    case 408:
    case 460:
    case 499:
      return false;
    case 505:
    case 507:
    case 508:
    case 510:
    case 511:
      return true;
    default:
      return status < 502;
  }
}

Ending ending_of_answer(unsigned status, bool has_sequence, bool is_early) noexcept {
  if (!proves_end(status)) return Ending::unknown;
  const auto word = word_of(status, has_sequence);
  if (word == Word::not_done) return Ending::refused;
  // An upstream that answers 'done' before it was sent the whole request does not mean this write.
  return word == Word::done && !is_early ? Ending::took_effect : Ending::unknown;
}

}  // namespace fenceguard::proxy
