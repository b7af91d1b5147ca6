// Package configure tries a configuration that is sent to the node. It keeps the configuration only if the node is as
// healthy with it as before.
//
//	main --Begin(role)--> Start --Load--> config.Config: the good one, or the one on trial
//	                        |
//	islet config, ConfigMap | Offer                     [on trial] facts --> trial.Judge
//	          |             v                                          |
//	          '--------> Keeper --check--> trial.Record                v
//	                        |  (assigned)                      Accept, Report --> guard
//	                        '--Begin--> Restart: the agent ends and becomes a guard
//
// A program of a followed index is confirmed right before its trial, because it may have waited since it was offered: see isConfirmed.
//
// A bundle offers its configuration too, by the methods in bundle_configuration.go. Its record decides whether that
// configuration is used: see package trial.
//
// If the good configuration has become invalid, or the agent cannot run with it on this host, the agent uses the
// previous good one. If that fails too, it uses the node's own files.
//
// A Start selects the configuration before the agent is created. A Keeper is a part of the agent. If nothing was ever
// sent to the node, the Keeper only waits for a signal. It then reads and writes no file.
package configure
