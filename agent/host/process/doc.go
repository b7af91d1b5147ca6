// Package process manages the agent's process: its limits, the locks on its directories, its log, the time limit for
// its shutdown, and its notifications to the service manager.
package process
