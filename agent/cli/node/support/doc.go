// Package support writes an archive for a report of a problem:
//
//	agent: status, events, configuration --.
//	doctor, versions ----------------------+--> secrets are replaced --> files --> archive
//	the agent's log: file or journal ------'                              |
//	                                         redacted.txt: what is missing or replaced
package support
