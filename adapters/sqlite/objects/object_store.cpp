#include "adapters/sqlite/objects/object_store.hpp"

#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

std::optional<Object> load(ObjectTable& objects, const ObjectStore::Read& read, std::string_view generation) {
  auto object = objects.load(read.path, generation);
  if (object && !read.with_body) object->body.clear();
  return object;
}

// Applies an admitted write; the ending, and the ETag of what was written.
std::pair<ObjectEnding, std::string> apply_object(FenceTransaction& transaction, const ObjectWrite& write) {
  const auto version = transaction.objects().version(write.path);
  std::optional<std::string> present;
  if (version) present = etag(transaction.row().generation, *version);
  if (!preconditions_hold(write, present)) return {ObjectEnding::precondition_failed, present.value_or("")};
  if (write.kind == ObjectWrite::Kind::remove) {
    if (!version) return {ObjectEnding::not_found, ""};
    transaction.objects().remove(write.path);
    return {ObjectEnding::removed, ""};
  }
  const std::int64_t next = transaction.next_object_version();
  transaction.objects().store(write, next);
  return {version ? ObjectEnding::replaced : ObjectEnding::created, etag(transaction.row().generation, next)};
}

bool took_effect(ObjectEnding ending) {
  return ending != ObjectEnding::not_found && ending != ObjectEnding::precondition_failed;
}

Outcome<WriteReport> write_in(FenceTransaction& transaction, const Claim& claim, const ObjectWrite& write,
                              std::int64_t jump_max) {
  const FenceView& view = transaction.view(claim.resource);
  auto judged = judge_in(transaction, view, claim, jump_max);
  if (!judged.ok()) return judged.fault();
  WriteReport report{std::move(judged.value()), std::nullopt, ""};
  if (report.ruling.verdict != Verdict::admitted) return report;
  auto [ending, tag] = apply_object(transaction, write);
  report.ending = ending;
  report.etag = std::move(tag);
  // A write that the storage refused leaves its sequence free; the token stays.
  if (!took_effect(ending)) report.ruling = judge_refused_write(view, claim);
  if (report.ruling.changed) transaction.record(claim.resource, *report.ruling.fence);
  return report;
}

// Raises the fence and reads in one step: a claim that is refused must not have raised it. Where nothing is
// to be raised, there is no object yet: it is read in a snapshot beside the committer.
Outcome<ReadReport> read_in(FenceTransaction& transaction, const ObjectStore::Read& read,
                            std::int64_t jump_max) {
  const FenceView& view = transaction.view(read.claim->resource);
  auto ruling = judge_in(transaction, view, *read.claim, jump_max);
  if (!ruling.ok()) return ruling.fault();
  if (!ruling.value().changed) return ReadReport{std::move(ruling.value()), std::nullopt};
  if (!transaction.has_room())
    return Fault{FaultKind::unavailable, "too many objects are read at once: try again later"};
  auto object = load(transaction.objects(), read, transaction.row().generation);
  if (object) transaction.note_held(object->body.size());
  transaction.record(read.claim->resource, *ruling.value().fence);
  return ReadReport{std::move(ruling.value()), std::move(object)};
}

}  // namespace

void EmbeddedObjects::write(Claim claim, ObjectWrite write, Done<WriteReport> done) {
  if (auto ruling = fences_.rule_early(claim, EmbeddedFences::Early::refusals)) {
    done(WriteReport{std::move(*ruling), std::nullopt, ""});
    return;
  }
  const std::size_t bytes = write.body.size();
  auto apply = [claim = std::move(claim), write = std::move(write), jump_max = jump_max_](
                   FenceTransaction& transaction) { return write_in(transaction, claim, write, jump_max); };
  submit<WriteReport>(committer_, Needs::namespace_row, std::move(apply), std::move(done), bytes);
}

void EmbeddedObjects::read(Read read, Done<ReadReport> done) {
  std::optional<Ruling> ruling;
  if (read.claim) {
    read.claim->sequence.reset();  // what writes nothing uses up no number
    ruling = fences_.rule_early(*read.claim, EmbeddedFences::Early::all);
    if (!ruling) {
      auto apply = [read, jump_max = jump_max_](FenceTransaction& transaction) {
        return read_in(transaction, read, jump_max);
      };
      auto then = [this, read = std::move(read), done = std::move(done)](Outcome<ReadReport> outcome) {
        if (!outcome.ok()) return done(outcome.fault());
        const auto& report = outcome.value();
        const bool is_read =
            report.ruling && (report.ruling->verdict != Verdict::admitted || report.ruling->changed);
        if (is_read) return done(std::move(outcome));
        look(read, report.ruling, done);
      };
      return submit<ReadReport>(committer_, Needs::namespace_row, std::move(apply),
                                Done<ReadReport>{std::move(then)});
    }
    if (ruling->verdict != Verdict::admitted) return done(ReadReport{std::move(ruling), std::nullopt});
  }
  look(std::move(read), std::move(ruling), std::move(done));
}

void EmbeddedObjects::look(Read read, std::optional<Ruling> ruling, Done<ReadReport> done) {
  readers_.ask<ReadReport>(
      [read = std::move(read), ruling = std::move(ruling)](Snapshot& snapshot) {
        const auto row = snapshot.fences.load_namespace();
        if (read.claim) {
          // A newer token may have been seen since the cache was asked.
          const FenceView view{snapshot.fences.load(read.claim->resource.name()), row ? row->floor : 0};
          Ruling now = judge(view, *read.claim);
          if (now.verdict != Verdict::admitted) return ReadReport{std::move(now), std::nullopt};
        }
        return ReadReport{ruling, load(snapshot.objects, read, row ? row->generation : "")};
      },
      std::move(done));
}

}  // namespace fenceguard::sqlite
