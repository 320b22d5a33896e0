# unsafemv: see README.md for what the targets do.
#
# check, check-slow, demo, bench and lint set up what they need themselves, on a machine
# that may not have PGXS yet; so they stand apart from the targets PGXS makes.

EXTENSION = unsafemv
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" unsafemv.control)
PG_CONFIG ?= pg_config

MODULE_big = unsafemv
OBJS = \
	src/unsafemv.o \
	src/library.o \
	src/errors.o \
	src/suid.o \
	src/merge_patch.o \
	src/mutation.o \
	src/event.o \
	src/index_entry.o \
	src/fold.o \
	src/kept.o \
	src/statement.o \
	src/statement_text.o \
	src/index_scan.o \
	src/registry.o \
	src/row_writer.o \
	src/receipts.o \
	src/lane_unsafe.o \
	src/lane_safe.o \
	src/generation.o \
	src/collect.o \
	src/page.o \
	src/page_scan.o \
	src/page_index.o \
	src/findings.o \
	src/kick.o \
	src/wait.o \
	src/projection.o \
	src/horizon.o \
	src/source.o \
	src/catchup.o \
	src/replay.o \
	src/follow.o \
	src/rebuild.o \
	src/deliver.o \
	src/worker.o \
	src/monitor.o \
	src/access.o

# The install script is these parts in this order.
SQL_PARTS = \
	sql/schema.sql \
	sql/suid.sql \
	sql/merge_patch.sql \
	sql/errors.sql \
	sql/tables.sql \
	sql/registry.sql \
	sql/lane_unsafe.sql \
	sql/lane_safe.sql \
	sql/receipts.sql \
	sql/generation.sql \
	sql/collect.sql \
	sql/findings.sql \
	sql/kick.sql \
	sql/wait.sql \
	sql/projection.sql \
	sql/follow.sql \
	sql/deliver.sql \
	sql/worker.sql \
	sql/page.sql \
	sql/monitor.sql \
	sql/access.sql

DATA_built = sql/$(EXTENSION)--$(EXTVERSION).sql

# test/sql, test/specs and test/t; CHECKS are further programs, run against a
# private server with the extension on offer (test/bin/check says how).
REGRESS = \
	suid \
	merge_patch \
	catalog \
	instance \
	mutation \
	unsafe \
	safe \
	receipts \
	batch \
	findings \
	kick \
	wait \
	page \
	page_paths \
	plans \
	plan_safety \
	tenants \
	errors \
	generation \
	collect \
	follow \
	rebuild \
	deliver \
	worker \
	security \
	names \
	hostile \
	corrupted \
	reentry \
	row_security \
	reports
ISOLATION = \
	active_generation \
	apply_many_keys \
	apply_repeatable_read \
	apply_same_event \
	apply_same_keys \
	apply_serializable \
	create_view \
	drop_view \
	follow_follow \
	follow_late \
	hot_key \
	kick_grant \
	kick_isolation \
	kick_take_over \
	no_deadlock \
	observe_receipt \
	safe_passes \
	safe_same_event \
	safe_same_step \
	safe_skips \
	wait_commit \
	begin_rebuild_race \
	promote_apply \
	promote_promote \
	promote_step \
	promote_reader \
	promote_rr_apply \
	collect_apply \
	collect_page \
	drop_generation_apply \
	skipped_row \
	rebuild_late \
	tenant_wait \
	isolation_lanes \
	isolation_operators \
	index_replaced
TAP = \
	001_crash \
	002_concurrent \
	003_isolation_and_replica \
	004_worker \
	005_catchup \
	006_leases \
	010_kills \
	011_functions \
	014_prepared \
	020_versions \
	030_reports
CHECKS = \
	test/bin/play \
	test/bin/property \
	test/bin/counter \
	test/bin/readme \
	test/bin/waiters \
	test/bin/boundaries \
	test/bin/scale \
	test/bin/soak

# What make check-slow runs: too long for every change. UNSAFEMV_SLOW in the
# environment tells tests that are in both lists to be thorough.
SLOW_TAP = \
	010_kills \
	012_cancel \
	013_memory \
	015_copies \
	016_logical
SLOW_CHECKS = \
	test/bin/disk_full \
	test/bin/drivers \
	test/bin/pooler \
	test/bin/scale \
	test/bin/upgrade

# Both drivers look for expected/ where they run, in every version.
REGRESS_OPTS = --inputdir=test --load-extension=$(EXTENSION)
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=$(EXTENSION)

EXTRA_CLEAN = build results output_iso regression.diffs regression.out

OWN_SETUP = check check-slow check-sanitize check-valgrind fuzz matrix demo bench lint indent

ifneq (,$(filter $(OWN_SETUP),$(MAKECMDGOALS)))

export PG_CONFIG EXTENSION EXTVERSION REGRESS ISOLATION TAP CHECKS EVENTS LIVE
export FUZZ_SECONDS FUZZ_SEED FUZZ_MERGE
export MATRIX MATRIX_DIR MATRIX_MIRROR MATRIX_TARGETS MATRIX_ARGS

.PHONY: $(OWN_SETUP)
$(filter-out check-slow,$(OWN_SETUP)):
	@test/bin/$@

check-slow:
	@UNSAFEMV_SLOW=1 REGRESS= ISOLATION= TAP='$(SLOW_TAP)' CHECKS='$(SLOW_CHECKS)' test/bin/check

# Any other target asked for beside these.
OTHERS = $(filter-out $(OWN_SETUP),$(MAKECMDGOALS))
ifneq (,$(OTHERS))
.PHONY: $(OTHERS)
$(OTHERS):
	@$(MAKE) $@
endif

else

# SANITIZE=1: AddressSanitizer and UBSan (test/bin/instrument).
ifneq (,$(SANITIZE))
SANITIZERS = -fsanitize=address,undefined -fno-omit-frame-pointer
PG_CFLAGS += $(SANITIZERS) -O1
SHLIB_LINK += $(SANITIZERS)
with_llvm = no
endif

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# The control file is the one place the version stands.
src/library.o src/library.bc: CPPFLAGS += -DUNSAFEMV_VERSION='"$(EXTVERSION)"'
src/library.o src/library.bc: unsafemv.control

$(DATA_built): $(SQL_PARTS) unsafemv.control Makefile
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION unsafemv" to load this file. \quit'; \
	   cat $(SQL_PARTS); } >$@.tmp && mv $@.tmp $@
	@echo "built $@"

# Headers are few and small: any change rebuilds all. So does another server, or
# another way to build. (A rule would not do: PGXS makes every file secondary.)
SERVER_STAMP := build/postgresql-$(MAJORVERSION)$(if $(SANITIZE),-sanitize)
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h) $(SERVER_STAMP)
ifeq (,$(wildcard $(SERVER_STAMP)))
$(shell mkdir -p build && rm -f build/postgresql-* && touch $(SERVER_STAMP))
endif

endif
