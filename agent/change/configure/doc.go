// Package configure has a node take a configuration that it is sent, and keep it only if the
// node is then as well as before.
//
//	main --Begin(role)--> Start --Load--> config.Config of what is good, or on trial
//	                        |
//	islet config, ConfigMap | Offer                     [on trial] facts --> trial.Judge
//	          |             v                                          |
//	          '--------> Keeper --check--> trial.Record                v
//	                        |  (assigned)                      Accept, Report --> guard
//	                        '--Begin--> Again: the agent ends and becomes a guard
//
// What was kept and cannot be used, or by which the host does not let the agent run now, is passed
// over: the good one before it counts, or the node's own files.
//
// A Start is made before the configuration is known, and decides which one counts. A Keeper is
// part of the agent that runs by it. Where nothing was ever sent it waits for a signal,
// holds an empty record, and reads and writes nothing.
package configure
