// Package crisuite has the contract tests of cri.Runtime. Implementations that run containers run
// all of them, the fake those that need no kernel.
//
//	Build(t, package) --> program --> Image(t, program) --> archive --> import --> Run(t, Subject)
package crisuite
