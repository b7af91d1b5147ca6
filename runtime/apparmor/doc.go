// Package apparmor says which AppArmor profile a container gets, as CRI runtimes
// have it: the node's default profile where nothing is asked for, and an error for
// what was asked for and cannot be enforced.
//
//	securityfs, apparmor_parser --> Host --Profile(security context)--> a name, "" or an error
//	                                   '--try: load the default profile, also when it is gone
//
// https://kubernetes.io/docs/tutorials/security/apparmor/
package apparmor
