/*
 * The judgement of a claim that equals its fence, and of the rows written under it, without SQL on the way. Whatever is
 * anything else goes to the plain SQL (004_admit.sql), by which it is ruled: this only ever answers "admitted".
 *
 * The claims that a transaction was admitted with are kept here instead of in sealed notes. No SQL can write them. They
 * end with the transaction, or with the savepoint that is rolled back, and so does the lock that each of them took.
 *
 * Nothing of PostgreSQL's inline functions that is not as old as the oldest version that this is built for: they call
 * what an older minor version of the server does not have. So tuples are deformed whole, and not by heap_getattr().
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

void _PG_init(void);

/* A text that lies elsewhere. */
typedef struct Bytes
{
	const char *data;
	int			size;
} Bytes;

typedef struct Asked
{
	Datum		resource;		/* for the index and for the plain SQL */
	Bytes		name;
	int64		token;
	Bytes		holder;
	int64		key;			/* of the fence's lock */
} Asked;

/* ---- The claims of this transaction ------------------------------------------------------------------------------ */

typedef struct NotedClaim
{
	struct NotedClaim *below;	/* the one noted before it */
	struct NotedClaim *next;	/* the one noted before it in the same bucket */
	SubTransactionId owner;		/* whose rollback takes it back */
	CommandId	verified_in;	/* in which the fence was last seen to equal it */
	uint64		verified_after; /* so many rollbacks to a savepoint, each of which may have released its lock */
	uint64		verified_generation;	/* and before so many news of fences and the floor */
	int64		key;
	int64		token;
	int			resource_size;
	int			holder_size;
	char		text[FLEXIBLE_ARRAY_MEMBER];	/* resource, holder */
} NotedClaim;

#define BUCKETS 256

static NotedClaim *newest = NULL;
static uint64 rollbacks = 0;
static NotedClaim *buckets[BUCKETS];

static NotedClaim **
bucket_of(int64 key)
{
	return &buckets[(uint64) key % BUCKETS];
}

static bool
is_same(Bytes a, const char *data, int size)
{
	return a.size == size && memcmp(a.data, data, size) == 0;
}

/* The newest claim to this resource, or NULL. */
static NotedClaim *
find_claim(int64 key, Bytes resource)
{
	for (NotedClaim *claim = *bucket_of(key); claim != NULL; claim = claim->next)
		if (claim->key == key && is_same(resource, claim->text, claim->resource_size))
			return claim;
	return NULL;
}

static NotedClaim *
find_equal_claim(const Asked *asked)
{
	for (NotedClaim *claim = *bucket_of(asked->key); claim != NULL; claim = claim->next)
		if (claim->key == asked->key && claim->token == asked->token &&
			is_same(asked->name, claim->text, claim->resource_size) &&
			is_same(asked->holder, claim->text + claim->resource_size, claim->holder_size))
			return claim;
	return NULL;
}

/* REQUIRES: this transaction has the fence's lock, and the claim is not noted yet. */
static NotedClaim *
note_claim(const Asked *asked)
{
	NotedClaim *claim = MemoryContextAlloc(TopTransactionContext, offsetof(NotedClaim, text) + asked->name.size +
										   asked->holder.size);

	claim->owner = GetCurrentSubTransactionId();
	claim->verified_in = InvalidCommandId;
	claim->verified_after = 0;
	claim->verified_generation = 0;
	claim->key = asked->key;
	claim->token = asked->token;
	claim->resource_size = asked->name.size;
	claim->holder_size = asked->holder.size;
	memcpy(claim->text, asked->name.data, asked->name.size);
	memcpy(claim->text + asked->name.size, asked->holder.data, asked->holder.size);
	claim->below = newest;
	claim->next = *bucket_of(asked->key);
	newest = *bucket_of(asked->key) = claim;
	return claim;
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			for (; newest != NULL; newest = newest->below)
				*bucket_of(newest->key) = NULL;
			break;
		default:
			break;
	}
}

/* The claims of the innermost sub-transaction are the newest ones. */
static void
at_subtransaction_end(SubXactEvent event, SubTransactionId ended, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (NotedClaim *claim = newest; claim != NULL && claim->owner == ended; claim = claim->below)
			claim->owner = parent;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* A cursor from outside that failed here has released what it locked outside: no claim is sure of its lock. */
		rollbacks++;
		for (; newest != NULL && newest->owner == ended; newest = newest->below)
			*bucket_of(newest->key) = newest->next;
	}
}

/* ---- The plain SQL ----------------------------------------------------------------------------------------------- */

static Oid
function_of(const char *name, int count, const Oid *types)
{
	return LookupFuncName(list_make2(makeString("fenceguard"), makeString(pstrdup(name))), count, types, false);
}

static Datum
call_sql(const char *name, int count, const Oid *types, const NullableDatum *values, bool *is_null)
{
	FmgrInfo	function;
	Datum		result;

	LOCAL_FCINFO(call, FUNC_MAX_ARGS);

	fmgr_info(function_of(name, count, types), &function);
	InitFunctionCallInfoData(*call, &function, count, C_COLLATION_OID, NULL, NULL);
	for (int i = 0; i < count; i++)
		call->args[i] = values[i];
	result = FunctionCallInvoke(call);
	*is_null = call->isnull;
	return result;
}

/* What this function answers, in plain SQL, with the arguments of the call. */
static Datum
return_from_sql(FunctionCallInfo fcinfo, const char *name, const Oid *types)
{
	return call_sql(name, PG_NARGS(), types, fcinfo->args, &fcinfo->isnull);
}

/* ---- The fences -------------------------------------------------------------------------------------------------- */

static struct
{
	bool		is_known;
	Oid			table;
	Oid			index;
	Oid			news;			/* what stands for 'a fence was changed' in messages */
	bool		is_news_known;	/* it may have been replaced by another relation of its name */
	AttrNumber	resource;
	AttrNumber	token;
	AttrNumber	holder;
	AttrNumber	closed;
	AttrNumber	below_floor;
	AttrNumber	advanced_by;
}			fences;

#define COLUMNS_MAX 64

static uint64 generation = 1;	/* of what was read of them; see known */

static Oid
news_relation(void)
{
	return get_relname_relid("rebases", get_namespace_oid("fenceguard", false));
}

static void
find_news(void)
{
	fences.is_news_known = true;	/* before the look, which may bring news */
	fences.news = news_relation();
	if (!OidIsValid(fences.news))
		fences.is_news_known = false;
	generation++;
}

static void
find_fences(void)
{
	Oid			schema = get_namespace_oid("fenceguard", false);
	Relation	table;

	find_news();
	fences.table = get_relname_relid("fences", schema);
	if (!OidIsValid(fences.table))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("there is no table fenceguard.fences")));
	table = table_open(fences.table, AccessShareLock);
	fences.resource = get_attnum(fences.table, "resource");
	fences.token = get_attnum(fences.table, "token");
	fences.holder = get_attnum(fences.table, "holder");
	fences.closed = get_attnum(fences.table, "closed");
	fences.below_floor = get_attnum(fences.table, "below_floor");
	fences.advanced_by = get_attnum(fences.table, "advanced_by");
	fences.index = get_relname_relid("fences_pkey", schema);
	if (!OidIsValid(fences.index) || fences.resource <= 0 || fences.token <= 0 || fences.holder <= 0 ||
		fences.closed <= 0 || fences.below_floor <= 0 || fences.advanced_by <= 0 ||
		RelationGetDescr(table)->natts > COLUMNS_MAX)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("fenceguard.fences is not the table that the extension fenceguard made"),
						errhint("ALTER EXTENSION fenceguard UPDATE")));
	fences.is_known = true;
	table_close(table, NoLock);
}

/*
 * Fences that were read, are open, and not below the floor. A transaction that changes one tells all backends so (see
 * fenceguard_tell_change), by a message of the relation cache, which it sends before it releases its locks. So who has
 * the fence's lock and takes up the messages then knows whether the fence is still what was read. Up to FENCES_KNOWN of
 * some 100 bytes, for each backend.
 */
typedef struct KnownFence
{
	int64		token;
	uint64		advanced_by;
	uint64		generation;		/* in which it was read */
	int			resource_size;
	int			holder_size;
	char		text[FLEXIBLE_ARRAY_MEMBER];	/* resource, holder */
} KnownFence;

typedef struct KnownSlot
{
	int64		key;
	KnownFence *fence;
} KnownSlot;

#define FENCES_KNOWN 16384
#define WAYS 4

static KnownSlot known[FENCES_KNOWN / WAYS][WAYS];
static MemoryContext known_memory = NULL;

static KnownFence *
find_known(const Asked *asked)
{
	KnownSlot  *slots = known[(uint64) asked->key % lengthof(known)];

	for (int i = 0; i < WAYS; i++)
		if (slots[i].key == asked->key && slots[i].fence != NULL && slots[i].fence->generation == generation &&
			is_same(asked->name, slots[i].fence->text, slots[i].fence->resource_size))
			return slots[i].fence;
	return NULL;
}

static void
keep_known(const Asked *asked, uint64 advanced_by)
{
	static unsigned next = 0;
	KnownSlot  *slots = known[(uint64) asked->key % lengthof(known)];
	KnownSlot  *slot = &slots[next++ % WAYS];
	KnownFence *fence;

	for (int i = 0; i < WAYS; i++)
		if (slots[i].key == asked->key || slots[i].fence == NULL || slots[i].fence->generation != generation)
			slot = &slots[i];
	if (known_memory == NULL)
		known_memory = AllocSetContextCreate(TopMemoryContext, "fences that fenceguard knows", ALLOCSET_DEFAULT_SIZES);
	fence = MemoryContextAlloc(known_memory, offsetof(KnownFence, text) + asked->name.size + asked->holder.size);
	fence->token = asked->token;
	fence->advanced_by = advanced_by;
	fence->generation = generation;
	fence->resource_size = asked->name.size;
	fence->holder_size = asked->holder.size;
	memcpy(fence->text, asked->name.data, asked->name.size);
	memcpy(fence->text + asked->name.size, asked->holder.data, asked->holder.size);
	if (slot->fence != NULL)
		pfree(slot->fence);
	slot->key = asked->key;
	slot->fence = fence;
}

static void
take_news(Datum arg, Oid relation)
{
	if (relation == InvalidOid || relation == fences.table || relation == fences.index || relation == fences.news)
		generation++;
	if (relation == InvalidOid || relation == fences.news)
		fences.is_news_known = false;
	if (relation == InvalidOid || relation == fences.table || relation == fences.index)
		fences.is_known = false;
}

/*
 * tell_change(): trigger, after a change of what a claim is compared with, also where it is undone. What is forgotten by
 * the message is the entry of fenceguard.rebases in the relation cache, which is hardly ever needed.
 */
PG_FUNCTION_INFO_V1(fenceguard_tell_change);
Datum
fenceguard_tell_change(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
						errmsg("fenceguard.tell_change() is a trigger of fenceguard.fences")));
	CacheInvalidateRelcacheByRelid(news_relation());
	return PointerGetDatum(NULL);
}

static bool
equals_known_fence(const Asked *asked, uint64 *advanced_by)
{
	KnownFence *fence = find_known(asked);

	if (fence == NULL)
		return false;
	*advanced_by = fence->advanced_by;
	return fence->token == asked->token &&
		is_same(asked->holder, fence->text + fence->resource_size, fence->holder_size);
}

/*
 * Whether the fence equals the claim, is open and not below the floor; then by which transaction it was advanced.
 *
 * It reads what is committed at this moment. As long as this transaction has the fence's lock no other one can change
 * what is compared here, but for the floor, which may take the record away: that is as if it had come a moment later.
 */
static bool
equals_fence_now(const Asked *asked, uint64 *advanced_by)
{
	bool		is_equal = false;
	Relation	table;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	AcceptInvalidationMessages();
	if (fences.is_known && !fences.is_news_known)
		find_news();
	if (fences.is_news_known && equals_known_fence(asked, advanced_by))
		return true;
	/* To lock it may bring the news that it is another one, or has other columns. */
	do
	{
		if (!fences.is_known)
			find_fences();
		table = try_relation_open(fences.table, AccessShareLock);
		if (table != NULL && !fences.is_known)
			relation_close(table, NoLock);
		else if (table == NULL)
			fences.is_known = false;
	} while (!fences.is_known);
	ScanKeyInit(&key, fences.resource, BTEqualStrategyNumber, F_TEXTEQ, asked->resource);
	scan = systable_beginscan(table, fences.index, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Datum		values[COLUMNS_MAX];
		bool		nulls[COLUMNS_MAX];
		text	   *holder;

		heap_deform_tuple(tuple, RelationGetDescr(table), values, nulls);
		holder = DatumGetTextPP(values[fences.holder - 1]);
		*advanced_by = DatumGetUInt64(values[fences.advanced_by - 1]);
		is_equal = DatumGetInt64(values[fences.token - 1]) == asked->token &&
			is_same(asked->holder, VARDATA_ANY(holder), VARSIZE_ANY_EXHDR(holder)) &&
			!DatumGetBool(values[fences.closed - 1]) && !DatumGetBool(values[fences.below_floor - 1]);
	}
	/* No news were taken up since it was read. What this transaction made may be rolled back, of which none tell. */
	if (is_equal && fences.is_news_known && !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmin(tuple->t_data)))
		keep_known(asked, *advanced_by);
	systable_endscan(scan);
	relation_close(table, NoLock);
	return is_equal;
}

/*
 * Seen to equal its fence by a look that began at generation seen: that is good until the next command, rollback to a
 * savepoint, or change of any fence or of the floor. Without news of those it is good for nothing.
 */
static void
mark_verified(NotedClaim *claim, uint64 seen)
{
	claim->verified_in = fences.is_news_known ? GetCurrentCommandId(false) : InvalidCommandId;
	claim->verified_after = rollbacks;
	claim->verified_generation = seen;
}

static bool
is_verified(const NotedClaim *claim)
{
	AcceptInvalidationMessages();
	return claim->verified_in == GetCurrentCommandId(false) && claim->verified_after == rollbacks &&
		fences.is_news_known && claim->verified_generation == generation;
}

/* ---- The judgement ----------------------------------------------------------------------------------------------- */

static Bytes
bytes_of(Datum value)
{
	text	   *string = DatumGetTextPP(value);
	Bytes		bytes = {VARDATA_ANY(string), VARSIZE_ANY_EXHDR(string)};

	return bytes;
}

static int64
lock_key_of(Datum resource)
{
	return DatumGetInt64(DirectFunctionCall2Coll(hashtextextended, C_COLLATION_OID, resource, Int64GetDatum(0)));
}

/* What is asked by the first three arguments; false if one of them is null. */
static bool
read_claim(FunctionCallInfo fcinfo, Asked *asked)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		return false;
	asked->resource = PointerGetDatum(PG_GETARG_TEXT_PP(0));
	asked->name = bytes_of(asked->resource);
	asked->token = PG_GETARG_INT64(1);
	asked->holder = bytes_of(PG_GETARG_DATUM(2));
	asked->key = lock_key_of(asked->resource);
	return true;
}

/* Where each statement sees what was committed before it began, and where locks count. */
static bool
is_judged_here(void)
{
	return XactIsoLevel == XACT_READ_COMMITTED && !RecoveryInProgress() && !IsInParallelMode();
}

static bool
share_lock(const Asked *asked)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) ((uint64) asked->key >> 32), (uint32) asked->key, 1);
	return LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Which statement writes under the claim, and so must see what the advance waited for. */
typedef enum Writing
{
	LATER_STATEMENT,			/* its snapshot is yet to be taken, and newer than the lock */
	THIS_STATEMENT,				/* the one that is running now */
	OUTER_STATEMENT				/* one that called, by way of a function, what is running now */
} Writing;

/*
 * Whether the statement that writes, and every cursor that is open, see what the transaction
 * advanced_by did. All of them see what is older than everything that this backend keeps visible. Where that does not
 * tell, which is while a transaction is open that is older than the advance, the plain SQL looks at the cursors, and
 * fails with 40001 where one may be older. What was opened after the claim was noted is not.
 */
static bool
is_seen(const Asked *asked, uint64 advanced_by, Writing writing, bool is_noted)
{
	TransactionId oldest = MyProc->xmin;
	FullTransactionId next = ReadNextFullTransactionId();
	NullableDatum resource = {asked->resource, false};
	Oid			type = TEXTOID;
	bool		is_null;

	if (!TransactionIdIsNormal(oldest))
		return false;
	if (advanced_by < U64FromFullTransactionId(next) - (uint32) (XidFromFullTransactionId(next) - oldest))
		return true;
	/* Of another server's life: the fence was restored from a dump. */
	if (advanced_by >= U64FromFullTransactionId(next))
		return true;
	if (TransactionIdIsCurrentTransactionId((TransactionId) advanced_by))
		return writing == LATER_STATEMENT && is_noted;
	if (writing == OUTER_STATEMENT)
		return false;
	if (writing == THIS_STATEMENT && (!ActiveSnapshotSet() || XidInMVCCSnapshot((TransactionId) advanced_by, GetActiveSnapshot())))
		return false;
	if (!is_noted)
		call_sql("require_seen_by_cursors", 1, &type, &resource, &is_null);
	return true;
}

/*
 * REQUIRES: is_judged_here(), and the lock of the fence is shared. Notes the claim if it equals its fence; false if it
 * has to be ruled on in SQL.
 */
static bool
admit_equal(const Asked *asked, Writing writing)
{
	uint64		advanced_by;
	uint64		seen = generation;
	NotedClaim *noted = find_equal_claim(asked);

	if (!equals_fence_now(asked, &advanced_by))
		return false;
	if (!is_seen(asked, advanced_by, writing, noted != NULL))
		return false;
	if (noted == NULL)
		noted = note_claim(asked);
	mark_verified(noted, seen);
	return true;
}

static bool
share_and_admit(FunctionCallInfo fcinfo, Asked *asked, Writing writing)
{
	return is_judged_here() && read_claim(fcinfo, asked) && share_lock(asked) && admit_equal(asked, writing);
}

static const Oid claim_types[] = {TEXTOID, INT8OID, TEXTOID, INT8OID, PG_SNAPSHOTOID};

/* admitted(resource, token, holder, sequence, statement) -> boolean */
PG_FUNCTION_INFO_V1(fenceguard_admitted);
Datum
fenceguard_admitted(PG_FUNCTION_ARGS)
{
	Asked		asked;

	if (PG_ARGISNULL(3) && share_and_admit(fcinfo, &asked, THIS_STATEMENT))
		PG_RETURN_BOOL(true);
	fcinfo->args[4].value = OidFunctionCall0(F_PG_CURRENT_SNAPSHOT);
	fcinfo->args[4].isnull = false;
	return return_from_sql(fcinfo, "admitted_slowly", claim_types);
}

/* confirm(resource, token, holder) -> void */
PG_FUNCTION_INFO_V1(fenceguard_confirm);
Datum
fenceguard_confirm(PG_FUNCTION_ARGS)
{
	Asked		asked;

	if (share_and_admit(fcinfo, &asked, LATER_STATEMENT))
		PG_RETURN_VOID();
	return return_from_sql(fcinfo, "confirm_slowly", claim_types);
}

/* rule_on(resource, token, holder, sequence, snapshot) -> text; the snapshot is that of the statement, or null. */
PG_FUNCTION_INFO_V1(fenceguard_rule_on);
Datum
fenceguard_rule_on(PG_FUNCTION_ARGS)
{
	Asked		asked;

	if (PG_ARGISNULL(3) && share_and_admit(fcinfo, &asked, PG_ARGISNULL(4) ? LATER_STATEMENT : OUTER_STATEMENT))
		PG_RETURN_TEXT_P(cstring_to_text("admitted"));
	return return_from_sql(fcinfo, "rule_with_lock", claim_types);
}

/*
 * equals_fence(resource, token, holder, sequence) -> boolean. It looks before it locks, because a transaction that then
 * needs the lock alone must not hold it shared: two such transactions would wait for each other.
 */
PG_FUNCTION_INFO_V1(fenceguard_equals_fence);
Datum
fenceguard_equals_fence(PG_FUNCTION_ARGS)
{
	Asked		asked;
	uint64		advanced_by;

	if (!PG_ARGISNULL(3) || !is_judged_here() || !read_claim(fcinfo, &asked) || !equals_fence_now(&asked, &advanced_by))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(share_lock(&asked) && admit_equal(&asked, LATER_STATEMENT));
}

/* ---- The memory, for the plain SQL ------------------------------------------------------------------------------- */

/* keep_claim(resource, token, holder). REQUIRES: it has just been admitted; only the plain SQL may call this. */
PG_FUNCTION_INFO_V1(fenceguard_keep_claim);
Datum
fenceguard_keep_claim(PG_FUNCTION_ARGS)
{
	Asked		asked;

	if (!read_claim(fcinfo, &asked))
		PG_RETURN_VOID();
	if (find_equal_claim(&asked) == NULL)
		note_claim(&asked);
	PG_RETURN_VOID();
}

/* is_claim_kept(resource, token, holder) -> boolean */
PG_FUNCTION_INFO_V1(fenceguard_is_claim_kept);
Datum
fenceguard_is_claim_kept(PG_FUNCTION_ARGS)
{
	Asked		asked;

	PG_RETURN_BOOL(read_claim(fcinfo, &asked) && find_equal_claim(&asked) != NULL);
}

/* kept_token(resource) -> bigint: of the newest claim to it, or null. */
PG_FUNCTION_INFO_V1(fenceguard_kept_token);
Datum
fenceguard_kept_token(PG_FUNCTION_ARGS)
{
	NotedClaim *claim = NULL;

	if (!PG_ARGISNULL(0))
		claim = find_claim(lock_key_of(PG_GETARG_DATUM(0)), bytes_of(PG_GETARG_DATUM(0)));
	if (claim == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT64(claim->token);
}

/* kept_holder(resource) -> text: likewise. */
PG_FUNCTION_INFO_V1(fenceguard_kept_holder);
Datum
fenceguard_kept_holder(PG_FUNCTION_ARGS)
{
	NotedClaim *claim = NULL;

	if (!PG_ARGISNULL(0))
		claim = find_claim(lock_key_of(PG_GETARG_DATUM(0)), bytes_of(PG_GETARG_DATUM(0)));
	if (claim == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(claim->text + claim->resource_size, claim->holder_size));
}

/* ---- Rows of protected tables ------------------------------------------------------------------------------------ */

/*
 * Whether this transaction was admitted to the resource and the fence still says so. The fence's lock was taken with the
 * claim and is kept as long, so only this transaction can have changed the fence since, and not within one command. But
 * the floor may have been raised, of which there are news before a lock is released that a row may have waited for.
 */
static bool
is_row_admitted(Datum resource)
{
	NotedClaim *claim;
	Asked		asked;
	uint64		advanced_by;
	uint64		seen;

	if (newest == NULL || !is_judged_here())
		return false;
	asked.resource = resource;
	asked.name = bytes_of(resource);
	asked.key = lock_key_of(resource);
	claim = find_claim(asked.key, asked.name);
	if (claim == NULL)
		return false;
	if (is_verified(claim))
		return true;
	asked.token = claim->token;
	asked.holder.data = claim->text + claim->resource_size;
	asked.holder.size = claim->holder_size;
	seen = generation;
	if (!share_lock(&asked) || !equals_fence_now(&asked, &advanced_by))
		return false;
	mark_verified(claim, seen);
	return true;
}

/* check_row(resource) -> boolean: true, or it raises. */
PG_FUNCTION_INFO_V1(fenceguard_check_row);
Datum
fenceguard_check_row(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && is_row_admitted(PG_GETARG_DATUM(0)))
		PG_RETURN_BOOL(true);
	return return_from_sql(fcinfo, "check_row_slowly", claim_types);
}

/* A table's resource expression, ready to be evaluated. */
typedef struct Expression
{
	Oid			trigger;		/* the key */
	Oid			relation;
	bool		is_valid;
	Oid			role;			/* whose right to call what is in it was looked at */
	struct Compiled *compiled;	/* or NULL */
} Expression;

/*
 * An ExprState holds the arguments of the functions that it has begun, and what these keep for their call. So one whose row
 * is still being judged is not evaluated again, nor freed, and one whose evaluation failed is not evaluated again.
 */
typedef struct Compiled
{
	bool		is_used;		/* a row is being judged with it */
	bool		is_evaluated;	/* or it failed */
	struct Compiled *next;		/* of those that others took the place of while they were used */
	MemoryContext memory;
	ExprState  *state;
	ExprContext *context;
	char	   *check_function;
} Compiled;

static HTAB *expressions = NULL;
static Compiled *replaced = NULL;
static uint64 expression_changes = 0;

/* Those of this table, or all. */
static void
forget_expressions(Oid relation)
{
	HASH_SEQ_STATUS all;
	Expression *expression;

	expression_changes++;
	if (expressions == NULL)
		return;
	hash_seq_init(&all, expressions);
	while ((expression = hash_seq_search(&all)) != NULL)
		if (relation == InvalidOid || expression->relation == relation)
			expression->is_valid = false;
}

static void
forget_expressions_of_relations(Datum arg, Oid relation)
{
	forget_expressions(relation);
}

static void
forget_expressions_of_functions(Datum arg, int cache, uint32 hash)
{
	forget_expressions(InvalidOid);
}

static Oid
owner_of(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

/*
 * The call of the resource function, whose parameters are named as the columns that it needs, with these columns. The
 * planner puts the function's own expression in its place.
 */
static Expr *
resource_call(Relation table, const char *function_name, const char *check_name)
{
	FuncCandidateList found;
	List	   *names = stringToQualifiedNameList(function_name
#if PG_VERSION_NUM >= 160000
												 ,NULL
#endif
		);
	Oid			check;
	Oid			ours = InvalidOid;
	HeapTuple	tuple;
	List	   *columns = NIL;
	Oid		   *types;
	char	  **parameters;
	char	   *modes;
	int			count = 0;
	Oid			result;
	bool		is_plain;

	found = FuncnameGetCandidates(names, -1, NIL, false, false,
#if PG_VERSION_NUM >= 140000
								  false,
#endif
								  true);
	/* Others may have a function of this name there, with other parameters: it is the one of whose the check function is. */
	check = LookupFuncName(stringToQualifiedNameList(check_name
#if PG_VERSION_NUM >= 160000
													 ,NULL
#endif
													 ), 0, NULL, true);
	for (FuncCandidateList next = found; next != NULL; next = next->next)
		if (OidIsValid(check) && owner_of(next->oid) == owner_of(check))
		{
			ours = next->oid;
			count++;
		}
	if (count != 1)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("the table \"%s\" is protected by %s, which is not there, or twice",
							   RelationGetRelationName(table), function_name),
						errhint("Call fenceguard.protect() again.")));
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(ours));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", ours);
	result = ((Form_pg_proc) GETSTRUCT(tuple))->prorettype;
	is_plain = ((Form_pg_proc) GETSTRUCT(tuple))->prokind == PROKIND_FUNCTION &&
		!((Form_pg_proc) GETSTRUCT(tuple))->proretset;
	count = get_func_arg_info(tuple, &types, &parameters, &modes);
	is_plain = is_plain && count == ((Form_pg_proc) GETSTRUCT(tuple))->pronargs;
	for (int i = 0; i < count; i++)
	{
		AttrNumber	column = parameters ? get_attnum(RelationGetRelid(table), parameters[i]) : InvalidAttrNumber;
		Oid			type;
		int32		typmod;
		Oid			collation;

		if (column <= 0)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("the table \"%s\" has no column \"%s\" any more, which its resource is made of",
								   RelationGetRelationName(table), parameters ? parameters[i] : "?"),
							errhint("Call fenceguard.protect() again.")));
		get_atttypetypmodcoll(RelationGetRelid(table), column, &type, &typmod, &collation);
		if (type != types[i])
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("the column \"%s\" of the table \"%s\" has another type than when it was protected",
								   parameters[i], RelationGetRelationName(table)),
							errhint("Call fenceguard.protect() again.")));
		columns = lappend(columns, makeVar(1, column, type, typmod, collation, 0));
	}
	ReleaseSysCache(tuple);
	if (result != TEXTOID || !is_plain)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("%s does not return one text", function_name)));
	return (Expr *) makeFuncExpr(ours, TEXTOID, columns, DEFAULT_COLLATION_OID, DEFAULT_COLLATION_OID,
								 COERCE_EXPLICIT_CALL);
}

/* What another one takes the place of. */
static void
free_expression(Compiled *old)
{
	Compiled  **place = &replaced;

	if (old != NULL)
	{
		old->next = replaced;
		replaced = old;
	}
	while (*place != NULL)
	{
		old = *place;
		if (old->is_used)
			place = &old->next;
		else
		{
			*place = old->next;
			MemoryContextDelete(old->memory);
		}
	}
}

static Compiled *
expression_of(TriggerData *data)
{
	Oid			id = data->tg_trigger->tgoid;
	bool		is_known;
	Expression *expression;
	Compiled   *compiled;
	MemoryContext memory;
	MemoryContext before;
	char	   *check_function;
	char	   *name;
	char	   *part;
	uint64		changes;

	if (expressions == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(Expression)};

		expressions = hash_create("expressions of fenceguard", 64, &control, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(forget_expressions_of_relations, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, forget_expressions_of_functions, (Datum) 0);
	}
	expression = hash_search(expressions, &id, HASH_ENTER, &is_known);
	if (!is_known)
	{
		expression->is_valid = false;
		expression->compiled = NULL;
	}
	if (expression->is_valid && expression->role == GetUserId() && !expression->compiled->is_used &&
		!expression->compiled->is_evaluated)
		return expression->compiled;

	if (data->tg_trigger->tgnargs != 2)
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
						errmsg("fenceguard.check_rows() is attached by fenceguard.protect() only")));
	check_function = data->tg_trigger->tgargs[1];
	part = strrchr(check_function, '.');
	if (part == NULL || strncmp(part, ".fenceguard_check_", strlen(".fenceguard_check_")) != 0)
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
						errmsg("fenceguard.check_rows() is attached by fenceguard.protect() only")));
	expression->relation = RelationGetRelid(data->tg_relation);
	/* To compile it calls functions, which may come here again; and it may fail, or meet the news that it is another. */
	changes = expression_changes;
	memory = AllocSetContextCreate(CurrentMemoryContext, "expression of fenceguard", ALLOCSET_SMALL_SIZES);
	before = MemoryContextSwitchTo(memory);
	compiled = palloc0(sizeof(Compiled));
	name = psprintf("%.*s.fenceguard_resource_%s", (int) (part - check_function), check_function,
					part + strlen(".fenceguard_check_"));
	compiled->memory = memory;
	compiled->state = ExecInitExpr(expression_planner(resource_call(data->tg_relation, name, check_function)), NULL);
	compiled->context = CreateStandaloneExprContext();
	compiled->check_function = pstrdup(check_function);
	MemoryContextSwitchTo(before);
	MemoryContextSetParent(memory, CacheMemoryContext);
	free_expression(expression->compiled);
	expression->compiled = compiled;
	expression->role = GetUserId();
	expression->is_valid = changes == expression_changes;
	return compiled;
}

static NullableDatum
resource_of(Compiled *expression, TupleTableSlot *row)
{
	ExprContext *context = expression->context;
	TupleTableSlot *before = context->ecxt_scantuple;
	NullableDatum result;

	expression->is_evaluated = true;
	context->ecxt_scantuple = row;
	result.value = ExecEvalExpr(expression->state, context, &result.isnull);
	context->ecxt_scantuple = before;
	expression->is_evaluated = false;
	return result;
}

/* For count_refusal(), which counts a refusal at the table whose function the stack names. */
static void
tell_check_function(void *name)
{
	errcontext("fenceguard function %s()", (const char *) name);
}

static void
check(Compiled *expression, NullableDatum resource)
{
	ErrorContextCallback told = {error_context_stack, tell_check_function, expression->check_function};
	Oid			type = TEXTOID;
	bool		is_null;

	if (!resource.isnull && is_row_admitted(resource.value))
		return;
	error_context_stack = &told;
	call_sql("check_row_slowly", 1, &type, &resource, &is_null);
	error_context_stack = told.previous;
}

static bool
is_same_resource(NullableDatum a, NullableDatum b)
{
	Bytes		other;

	if (a.isnull || b.isnull)
		return false;
	other = bytes_of(b.value);
	return is_same(bytes_of(a.value), other.data, other.size);
}

static void
check_row(Compiled *expression, TriggerData *data)
{
	NullableDatum before;
	NullableDatum after;

	if (!TRIGGER_FIRED_BY_UPDATE(data->tg_event))
	{
		check(expression, resource_of(expression, data->tg_trigslot));
		return;
	}
	after = resource_of(expression, data->tg_newslot);
	before = resource_of(expression, data->tg_trigslot);
	check(expression, after);
	if (!is_same_resource(before, after))
		check(expression, before);
}

/* check_rows(expression, check function): trigger, after each row. */
PG_FUNCTION_INFO_V1(fenceguard_check_rows);
Datum
fenceguard_check_rows(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Compiled   *expression;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
						errmsg("fenceguard.check_rows() is a trigger after each row")));
	expression = expression_of(data);
	expression->is_used = true;
	PG_TRY();
	{
		check_row(expression, data);
	}
	PG_FINALLY();
	{
		expression->is_used = false;
	}
	PG_END_TRY();
	return PointerGetDatum(NULL);
}

/* ---- The claims of the session ----------------------------------------------------------------------------------- */

/* As they were read from the setting, in the order in which they are locked. */
static struct
{
	char	   *text;			/* NULL: none was read */
	MemoryContext memory;
	Asked	   *claims;
	int			count;
}			session;

/* By the plain SQL, which raises for what is no list of claims. */
static void
read_session_claims(const char *setting)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "claims of the session that fenceguard read",
												 ALLOCSET_SMALL_SIZES);
	MemoryContext before;
	bool		is_null;
	Datum		array = call_sql("session_claims_in_order", 0, NULL, NULL, &is_null);
	Datum	   *parts;
	Asked	   *claims;
	int			count;
	char	   *copy;

	if (is_null)
		elog(ERROR, "the setting fenceguard.session_claims has no claims");
	before = MemoryContextSwitchTo(memory);
	deconstruct_array(DatumGetArrayTypePCopy(array), TEXTOID, -1, false, TYPALIGN_INT, &parts, NULL, &count);
	count /= 3;
	claims = palloc0(count * sizeof(Asked));
	for (int i = 0; i < count; i++)
	{
		claims[i].resource = parts[3 * i];
		claims[i].name = bytes_of(parts[3 * i]);
		claims[i].token = DatumGetInt64(DirectFunctionCall1(int8in,
															CStringGetDatum(TextDatumGetCString(parts[3 * i + 1]))));
		claims[i].holder = bytes_of(parts[3 * i + 2]);
		claims[i].key = lock_key_of(parts[3 * i]);
	}
	copy = pstrdup(setting);
	MemoryContextSwitchTo(before);
	MemoryContextSetParent(memory, TopMemoryContext);
	if (session.text != NULL)
		MemoryContextDelete(session.memory);
	session.text = copy;
	session.memory = memory;
	session.claims = claims;
	session.count = count;
}

/*
 * Admits all claims of the session; false if one of them has to be looked at in SQL. It looks before it locks: a stale
 * claim holds no lock, which others would wait for in vain.
 */
static bool
admit_session(const char *text, Writing writing)
{
	if (!is_judged_here())
		return false;
	if (session.text == NULL || strcmp(session.text, text) != 0)
		read_session_claims(text);
	for (int i = 0; i < session.count; i++)
	{
		uint64		advanced_by;

		if (!equals_fence_now(&session.claims[i], &advanced_by) || !share_lock(&session.claims[i]) ||
			!admit_equal(&session.claims[i], writing))
			return false;
	}
	return true;
}

/*
 * admit_session_claims(): trigger, before each statement. Where something runs the statement, and so an outer one may have
 * an older snapshot, there is a context to tell an error.
 */
PG_FUNCTION_INFO_V1(fenceguard_admit_session_claims);
Datum
fenceguard_admit_session_claims(PG_FUNCTION_ARGS)
{
	const char *text = GetConfigOption("fenceguard.session_claims", true, false);
	bool		is_nested = error_context_stack != NULL;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
						errmsg("fenceguard.admit_session_claims() is a trigger before each statement")));
	if (text != NULL && *text != '\0' && !admit_session(text, is_nested ? OUTER_STATEMENT : THIS_STATEMENT))
	{
		NullableDatum values[] = {{OidFunctionCall0(F_PG_CURRENT_SNAPSHOT), false}, {BoolGetDatum(is_nested), false}};
		const Oid	types[] = {PG_SNAPSHOTOID, BOOLOID};
		bool		is_null;

		call_sql("admit_session", 2, types, values, &is_null);
	}
	return PointerGetDatum(NULL);
}

void
_PG_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
	CacheRegisterRelcacheCallback(take_news, (Datum) 0);
}
