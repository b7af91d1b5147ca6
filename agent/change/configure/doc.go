// Package configure accepts a configuration that is sent to the node, and keeps it only if the
// node is as healthy with it as before.
//
//	main --Begin(role)--> Start --Load--> config.Config of what is good, or on trial
//	                        |
//	islet config, ConfigMap | Offer                     [on trial] facts --> trial.Judge
//	          |             v                                          |
//	          '--------> Keeper --check--> trial.Record                v
//	                        |  (assigned)                      Accept, Report --> guard
//	                        '--Begin--> Again: the agent ends and becomes a guard
//
// A kept configuration that is invalid, or with which the agent cannot run on this host, is
// skipped: the previous good one is used, or the node's own files.
//
// A Start exists before the configuration is loaded, and selects it. A Keeper is part of the
// agent that runs with it. On a node to which nothing was ever sent the Keeper only waits for a
// signal; it reads and writes no file.
package configure
