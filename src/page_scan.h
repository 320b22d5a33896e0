/*
 * page_scan.h
 *	  Gate, rows and total of composed pages by direct index scans.
 */
#ifndef UNSAFEMV_PAGE_SCAN_H
#define UNSAFEMV_PAGE_SCAN_H

#include "page.h"

/*
 * Each does what the statement of the same purpose does, in the active snapshot;
 * false: it cannot (index_scan_open), nothing was sent, run the statement.
 */

/* STATEMENT_READ_STATE; "found" tells whether there is such a view. */
extern bool page_scan_state(text *service_id, text *view_id, ReadState *state, bool *found);

/* A part of kind STATEMENT_PAGE_...; the rows sent are counted in "rows". */
extern bool page_scan_part(const ReadPart *part, int64 offset, int64 limit, DestReceiver *dest, uint64 *rows);

/*
 * STATEMENT_READ_TOTAL: tentative rows that count and are not hidden, and ones that
 * count and have a safe row.
 */
extern bool page_scan_total(const ReadState *state, const Suid *bound, int64 *visible, int64 *covering);

#endif							/* UNSAFEMV_PAGE_SCAN_H */
