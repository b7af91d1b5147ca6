// Package crisuite contains the contract tests of cri.Runtime. A runtime that runs containers runs
// all of them. The fake runtime runs only the tests that need no kernel.
//
//	Build(t, package) --> program --> Image(t, program) --> archive --> import --> Run(t, Subject)
package crisuite
