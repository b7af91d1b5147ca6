// Package download requests files from web servers that may be hostile or broken.
//
//	update, bundle --Get--> request --> server
//	                           ^           |
//	                     Client: TLS with the best known time, no redirect to http, a limit for headers
//	                                       |
//	caller <--Body: ends if nothing arrives, or if the rate is too low--'
//
// Every failure of the link or of the server is an UnreachableError. The caller limits the number of bytes that it reads, and verifies
// them.
package download
