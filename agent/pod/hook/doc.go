// Package hook holds the small interfaces by which a feature joins a pod's life.
// Package agent lists the features in one explicit ordered slice, a Chain; the
// worker calls them. A feature implements Named and the abilities it needs; it
// need not import this package, for the interfaces use only Kubernetes' types.
//
//	admitted --> Prepare --> Sandbox --> run sandbox --> Prepare --> Start --> Container --> create, start
//	                                         |
//	                  spec changed: Update --+
//	   resources: Grow, containers, Shrink --+
//	                                         +--> all over, still wanted --> Ended
//	                                         +--> deleted, nothing left in the runtime --> Release
//
// Each step is an action of the plan: it runs beside other pods' actions, is cancelled
// when it is no longer wanted, and is repeated with a back-off after a failure. Prepare,
// Start, Update, Ended and Release may wait, for the network or for another program, until
// their context ends, which must end them soon; they keep no place that others need, but
// only so many pods prepare at once.
// Sandbox and Container are called in one of the bounded places in which pods start:
// they must not wait.
package hook
