// Package process manages the agent's process: its limits, the locks on its directories, the log, a
// bounded end, and reports to the service manager.
package process
