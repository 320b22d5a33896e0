-- merge_patch: RFC 7396 and the other patch kinds as plain functions on jsonb

CREATE FUNCTION unsafemv.jsonb_merge_patch(target jsonb, patch jsonb)
RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_jsonb_merge_patch';

COMMENT ON FUNCTION unsafemv.jsonb_merge_patch(jsonb, jsonb) IS
'RFC 7396 merge patch: null in patch removes a member, objects merge recursively, anything else (arrays too) replaces. target NULL: absent. patch: any JSON value; NULL gives NULL. A member cannot be set to null this way: write the whole row instead';

CREATE FUNCTION unsafemv.jsonb_apply_patch(kind text, target jsonb, patch jsonb)
RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_jsonb_apply_patch';

COMMENT ON FUNCTION unsafemv.jsonb_apply_patch(text, jsonb, jsonb) IS
'what a row patch of this kind makes of a value. kind: json_patch (RFC 7396), add (numbers; absent or not a number: 0; a sum numeric cannot hold leaves the number), min, max (absent or not a number: the operand), append (arrays; absent or not an array: empty), union (append what is not yet an element). target NULL: absent. patch: an object, applied member by member. Never fails on target. Errors: MV_VALUE_INVALID (kind or patch NULL), MV_PATCH_KIND_INVALID, MV_PATCH_OBJECT_REQUIRED, MV_PLAN_INVALID (an operand of add, min or max that is not a number)';
