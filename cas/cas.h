/* cas/cas.h - front door: what other folders may use of cas/ */
#ifndef CAS_CAS_H
#define CAS_CAS_H

#include "cas/action.h"
#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/base/mountinfo.h"
#include "cas/base/process.h"
#include "cas/call.h"
#include "cas/catalog.h"
#include "cas/checkout.h"
#include "cas/digest.h"
#include "cas/directory.h"
#include "cas/evict.h"
#include "cas/fetch.h"
#include "cas/fsck.h"
#include "cas/hash.h"
#include "cas/ingest.h"
#include "cas/layout.h"
#include "cas/outbox.h"
#include "cas/push.h"
#include "cas/put.h"
#include "cas/quota.h"
#include "cas/spool.h"
#include "cas/store.h"
#include "cas/temp_name.h"
#include "cas/tier.h"

#endif
