// Package response writes the responses of the server: errors with their status codes, JSON, and responses of unlimited length.
//
//	error   --WriteError--> plain text with the code of the Refusal, or 404, or 500
//	value   --JSON--------> a JSON document
//	bytes   --Stream------> a response that may take hours: a log, an archive
//	values  --Lines-------> one JSON value per line: a watch
//	steps   --Progress----> lines with the progress of an operation, and at last its result
//
// A response of unlimited length has a timeout for each write. If it ends early, the client can see that it is incomplete.
package response
