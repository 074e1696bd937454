/* cas/reapi/result_limits.c - limits in the metadata of an ActionResult */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/action.h"

/*
 * As google.protobuf.Struct, which every client can read without knowing us:
 * {"limit": NAME, "value": N, "peak": N, "reached": BOOL}.
 */
#define FIELDS_MAX 4

struct one {
	Reapi__Struct object;
	Reapi__StructField fields[FIELDS_MAX];
	Reapi__StructField *field_ptrs[FIELDS_MAX];
	Reapi__Value values[FIELDS_MAX];
};

static Reapi__Value *add_field(struct one *o, const char *name)
{
	size_t i = o->object.n_fields++;

	reapi__struct_field__init(&o->fields[i]);
	reapi__value__init(&o->values[i]);
	o->fields[i].key = (char *)(uintptr_t)name;
	o->fields[i].value = &o->values[i];
	o->field_ptrs[i] = &o->fields[i];
	o->object.fields = o->field_ptrs;
	return &o->values[i];
}

static void add_number(struct one *o, const char *name, uint64_t value)
{
	Reapi__Value *v = add_field(o, name);

	v->kind_case = REAPI__VALUE__KIND_NUMBER_VALUE;
	v->number_value = (double)value;
}

static Reapi__Any *make_any(const struct cas_limit *limit)
{
	Reapi__Any *any = calloc(1, sizeof(*any));
	struct one o;
	Reapi__Value *v;

	if (!any)
		return NULL;
	reapi__struct__init(&o.object);
	v = add_field(&o, "limit");
	v->kind_case = REAPI__VALUE__KIND_STRING_VALUE;
	v->string_value = (char *)(uintptr_t)limit->name;
	add_number(&o, "value", limit->value);
	if (limit->has_peak)
		add_number(&o, "peak", limit->peak);
	v = add_field(&o, "reached");
	v->kind_case = REAPI__VALUE__KIND_BOOL_VALUE;
	v->bool_value = limit->reached;
	reapi__any__init(any);
	any->type_url = strdup(CAS_RESULT_LIMIT_TYPE);
	any->value.data = malloc(reapi__struct__get_packed_size(&o.object));
	if (!any->type_url || !any->value.data) {
		reapi__any__free_unpacked(any, NULL);
		return NULL;
	}
	any->value.len = reapi__struct__pack(&o.object, any->value.data);
	return any;
}

static int add_all(Reapi__ActionResult *r, const struct cas_limit *limits, size_t nr)
{
	Reapi__ExecutedActionMetadata *m = r->execution_metadata;
	Reapi__Any **grown;

	if (!m) {
		m = r->execution_metadata = malloc(sizeof(*m));
		if (!m)
			return -ENOMEM;
		reapi__executed_action_metadata__init(m);
	}
	grown = reallocarray(m->auxiliary_metadata, m->n_auxiliary_metadata + nr, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	m->auxiliary_metadata = grown;
	for (size_t i = 0; i < nr; i++) {
		grown[m->n_auxiliary_metadata] = make_any(&limits[i]);
		if (!grown[m->n_auxiliary_metadata])
			return -ENOMEM;
		m->n_auxiliary_metadata++;
	}
	return 0;
}

int cas_result_add_limits(struct buf *result, const struct cas_limit *limits, size_t nr,
			  struct err *err)
{
	Reapi__ActionResult *r;
	int ret;

	if (nr == 0)
		return 0;
	r = reapi__action_result__unpack(NULL, result->len, (const uint8_t *)buf_str(result));
	if (!r)
		return err_set(err, -EUCLEAN, "not an ActionResult");
	ret = add_all(r, limits, nr);
	if (ret == 0) {
		buf_reset(result);
		ret = buf_reserve(result, reapi__action_result__get_packed_size(r) + 1);
	}
	if (ret == 0)
		result->len = reapi__action_result__pack(r, (uint8_t *)result->data);
	reapi__action_result__free_unpacked(r, NULL);
	return ret < 0 ? err_set(err, ret, "no memory for a result") : 0;
}
