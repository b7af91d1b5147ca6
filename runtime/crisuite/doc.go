// Package crisuite contains the contract tests of cri.Runtime. Tests that need processes are
// skipped for the fake runtime.
//
//	Build(t, package) --> program --> Image(t, program) --> archive --> import --> Run(t, Subject)
package crisuite
