/*
 * worker.h
 *	  Background workers that let the views of a database catch up.
 */
#ifndef UNSAFEMV_WORKER_H
#define UNSAFEMV_WORKER_H

/* Settings, and the workers of unsafemv.databases; from _PG_init. */
extern void worker_init(void);

#endif							/* UNSAFEMV_WORKER_H */
