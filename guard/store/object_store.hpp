#pragma once

// ObjectStore: objects whose writes are judged in the same transaction as they are applied. Calls, faults and
// threads as in FenceStore.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard {

struct Object {
  std::string body;
  std::string content_type;
  std::string etag;             // with its quotes, as in HTTP
  std::int64_t size_bytes = 0;  // of the body, also where the body was not asked for
};

// If-Match and If-None-Match (RFC 9110, section 13.1).
struct Precondition {
  bool any = false;                // '*'
  std::vector<std::string> etags;  // with their quotes; a weak one keeps its W/
};

struct ObjectWrite {
  enum class Kind { put, remove };
  Kind kind = Kind::put;
  std::string path;
  std::string body;
  std::string content_type;
  std::optional<Precondition> if_match;
  std::optional<Precondition> if_none_match;
};

enum class ObjectEnding { created, replaced, removed, not_found, precondition_failed };

struct WriteReport {
  Ruling ruling;
  std::optional<ObjectEnding> ending;  // only if the ruling is admitted
  std::string etag;                    // of the object written
};

struct ReadReport {
  std::optional<Ruling> ruling;  // of the claim, if there was one; the object is only read if it is admitted
  std::optional<Object> object;  // nothing: not found, or refused
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // {judge; apply} as one atomic step.
  virtual void write(Claim claim, ObjectWrite write, Done<WriteReport> done) = 0;

  // A plain read, or with a claim a fenced one, which advances first and is one step with its judgement: an
  // admitted one never holds what a newer token wrote. Without the body if with_body is false.
  struct Read {
    std::string path;
    std::optional<Claim> claim;
    bool with_body = true;
  };
  virtual void read(Read read, Done<ReadReport> done) = 0;
};

}  // namespace fenceguard
