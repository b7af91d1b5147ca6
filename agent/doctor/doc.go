// Package doctor examines a host. It reports problems that prevent pods from running on the host, or may do so later,
// and how to fix them. It changes nothing unless --fix is given. It needs no agent, so it works on a machine before
// islet runs there.
//
//	flags, an agent, or a service --> Main --> Input
//	Input (settings, the host as files) --+
//	System (disks, programs, clock) ------+--> checks, in order --> []Finding --> Write, ExitCode
//
// Each file contains the checks of one subject. If a check finds no problem, it adds an OK finding, so that a report
// can show all checks.
package doctor
