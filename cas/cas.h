/* cas/cas.h - front door: what other folders may use of cas/ */
#ifndef CAS_CAS_H
#define CAS_CAS_H

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/call.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/base/mountinfo.h"
#include "cas/base/process.h"
#include "cas/catalog.h"
#include "cas/checkout/checkout.h"
#include "cas/digest.h"
#include "cas/evict/evict.h"
#include "cas/evict/quota.h"
#include "cas/fetch/fetch.h"
#include "cas/fetch/outbox.h"
#include "cas/fetch/push.h"
#include "cas/fsck/fsck.h"
#include "cas/hash.h"
#include "cas/ingest/ingest.h"
#include "cas/put/put.h"
#include "cas/put/temp_name.h"
#include "cas/reapi/action.h"
#include "cas/reapi/directory.h"
#include "cas/spool/spool.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "cas/tier.h"

#endif
