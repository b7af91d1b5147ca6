// Package process manages the agent's process: its limits, the locks on its directories, its log, the time limit of
// its end, and its notifications to the service manager.
package process
