// Package crisuite holds the contract tests of cri.Runtime. Every implementation
// runs them: those with a kernel below all, the fake those that need none.
//
//	Build(t, package) --> program --> Image(t, program) --> archive --> import --> Run(t, Subject)
package crisuite
