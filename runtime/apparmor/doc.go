// Package apparmor selects the AppArmor profile of a container, like other CRI runtimes. A
// container that requests no profile gets the default profile. A requested profile that cannot be
// enforced is an error.
//
//	securityfs, apparmor_parser --> Host --Profile(security context)--> a name, "" or an error
//	                                   '--attempt: loads the default profile, again if it was removed
//
// https://kubernetes.io/docs/tutorials/security/apparmor/
package apparmor
