// Package doctor examines a host. It reports problems that prevent pods from running on the host, or that may prevent
// this later. It also reports how to fix the problems. It changes nothing unless --fix is given. It does not need a
// running agent. So it can examine a machine before islet is started there.
//
//	flags, an agent, or a service --> Main --> Input
//	Input (settings, the host as files) --+
//	System (disks, programs, clock) ------+--> checks, in order --> []Finding --> Write, ExitCode
//
// Each file contains the checks of one subject. A check that finds no problem adds an OK finding, so that a report
// can show all checks.
//
// The packages below it:
//
//	migrate   how islet takes a machine over from another agent
//	unitfile  reads unit files of systemd
package doctor
