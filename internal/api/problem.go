// Package api is weft's HTTP surface as data: the codes of its problem documents, the parameters of a search, the replies, and
// the OpenAPI document that describes them. It knows no engine and no server, so that every role that answers HTTP answers alike.
//
// Values are plain and not shared; functions are safe for concurrent use.
package api

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/serve"
)

// Code is the stable name of an error. Callers branch on it.
type Code string

// The codes. Codes lists them with status and title.
const (
	InvalidJSON          Code = "invalid_json"
	InvalidUTF8          Code = "invalid_utf8"
	InvalidQuery         Code = "invalid_query"
	QueryLimit           Code = "query_limit"
	ScoreOverflow        Code = "score_overflow"
	UnknownParameter     Code = "unknown_parameter"
	InvalidParameter     Code = "invalid_parameter"
	MissingParameter     Code = "missing_parameter"
	RepeatedParameter    Code = "repeated_parameter"
	UnknownField         Code = "unknown_field"
	InvalidField         Code = "invalid_field"
	FieldNotSearchable   Code = "field_not_searchable"
	FieldNotFast         Code = "field_not_fast"
	NoPositions          Code = "no_positions"
	InvalidBound         Code = "invalid_bound"
	FieldNotSortable     Code = "field_not_sortable"
	FieldNotVector       Code = "field_not_vector"
	InvalidVector        Code = "invalid_vector"
	InvalidAggregation   Code = "invalid_aggregation"
	AggregationLimit     Code = "aggregation_limit"
	InvalidCursor        Code = "invalid_cursor"
	CursorMismatch       Code = "cursor_mismatch"
	TooManyTokens        Code = "too_many_tokens"
	PrefixTooBroad       Code = "prefix_too_broad"
	ReplyTooLarge        Code = "reply_too_large"
	InvalidIndexName     Code = "invalid_index_name"
	InvalidID            Code = "invalid_id"
	InvalidDocument      Code = "invalid_document"
	DuplicateMember      Code = "duplicate_member"
	MissingID            Code = "missing_id"
	TypeConflict         Code = "type_conflict"
	NumberOutOfRange     Code = "number_out_of_range"
	ValueTooLong         Code = "value_too_long"
	TooManyValues        Code = "too_many_values"
	TooManyFields        Code = "too_many_fields"
	InvalidFieldName     Code = "invalid_field_name"
	TooDeep              Code = "too_deep"
	InvalidSchema        Code = "invalid_schema"
	NothingApplied       Code = "nothing_applied"
	InvalidBody          Code = "invalid_body"
	NotFound             Code = "not_found"
	IndexNotFound        Code = "index_not_found"
	DocumentNotFound     Code = "document_not_found"
	JobNotFound          Code = "job_not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	BodyTimeout          Code = "body_timeout"
	SchemaConflict       Code = "schema_conflict"
	CommitNeeded         Code = "commit_needed"
	IndexDeleted         Code = "index_deleted"
	StaleMap             Code = "stale_map"
	LoadUnderWay         Code = "load_under_way"
	LoadMoved            Code = "load_moved"
	JobConflict          Code = "job_conflict"
	BodyTooLarge         Code = "body_too_large"
	DocumentTooLarge     Code = "document_too_large"
	URITooLong           Code = "uri_too_long"
	HeadersTooLarge      Code = "headers_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	UnsupportedEncoding  Code = "unsupported_encoding"
	TooManySearches      Code = "too_many_searches"
	TooManyWrites        Code = "too_many_writes"
	TooManyBulks         Code = "too_many_bulks"
	RequestMemoryFull    Code = "request_memory_full"
	MemtableFull         Code = "memtable_full"
	IndexLimit           Code = "index_limit"
	CallerGone           Code = "caller_gone"
	Internal             Code = "internal"
	WriteUncertain       Code = "write_uncertain"
	NotReady             Code = "not_ready"
	IndexUnavailable     Code = "index_unavailable"
	ReadOnly             Code = "read_only"
	ShuttingDown         Code = "shutting_down"
	Incomplete           Code = "incomplete"
	GroupUnavailable     Code = "group_unavailable"
	Timeout              Code = "timeout"
	DiskFull             Code = "disk_full"
)

// StatusCallerGone is the status of a reply to a caller that hung up. Hardly anyone will see it but logs and metrics.
const StatusCallerGone = 499

// CodeInfo is what a code always means.
type CodeInfo struct {
	Status int    // HTTP status
	Title  string // short, the same for every occurrence
}

// Codes is the one table from code to status and title.
var Codes = map[Code]CodeInfo{
	InvalidJSON:          {http.StatusBadRequest, "The body is not valid JSON"},
	InvalidUTF8:          {http.StatusBadRequest, "Text is not valid UTF-8"},
	InvalidQuery:         {http.StatusBadRequest, "The query cannot be read"},
	QueryLimit:           {http.StatusBadRequest, "The query is too large"},
	ScoreOverflow:        {http.StatusBadRequest, "A score is too large for a number"},
	UnknownParameter:     {http.StatusBadRequest, "Unknown parameter"},
	InvalidParameter:     {http.StatusBadRequest, "A parameter has a value that is not allowed"},
	MissingParameter:     {http.StatusBadRequest, "A parameter is missing"},
	RepeatedParameter:    {http.StatusBadRequest, "A parameter is given more than once"},
	UnknownField:         {http.StatusBadRequest, "The index has no such field"},
	InvalidField:         {http.StatusBadRequest, "The field cannot be used like this"},
	FieldNotSearchable:   {http.StatusBadRequest, "The field is not searchable"},
	FieldNotFast:         {http.StatusBadRequest, "The field has no column"},
	NoPositions:          {http.StatusBadRequest, "The field keeps no positions"},
	InvalidBound:         {http.StatusBadRequest, "A bound is not a value of the field"},
	FieldNotSortable:     {http.StatusBadRequest, "The field has no order"},
	FieldNotVector:       {http.StatusBadRequest, "The field holds no indexed vectors"},
	InvalidVector:        {http.StatusBadRequest, "The vector does not fit the field"},
	InvalidAggregation:   {http.StatusBadRequest, "The aggregation cannot be read"},
	AggregationLimit:     {http.StatusBadRequest, "The aggregation is too large"},
	InvalidCursor:        {http.StatusBadRequest, "Not a cursor"},
	CursorMismatch:       {http.StatusBadRequest, "The cursor is of another search"},
	TooManyTokens:        {http.StatusBadRequest, "The query has too many words"},
	PrefixTooBroad:       {http.StatusBadRequest, "A prefix has too many words"},
	ReplyTooLarge:        {http.StatusBadRequest, "The reply would be too large"},
	InvalidIndexName:     {http.StatusBadRequest, "Not a name for an index"},
	InvalidID:            {http.StatusBadRequest, "Not an id of a document"},
	InvalidDocument:      {http.StatusBadRequest, "The document does not fit the index"},
	DuplicateMember:      {http.StatusBadRequest, "A member is given twice"},
	MissingID:            {http.StatusBadRequest, "The document has no id"},
	TypeConflict:         {http.StatusBadRequest, "A value does not fit its field"},
	NumberOutOfRange:     {http.StatusBadRequest, "A number is out of range"},
	ValueTooLong:         {http.StatusBadRequest, "A value is too long"},
	TooManyValues:        {http.StatusBadRequest, "The document has too many values"},
	TooManyFields:        {http.StatusBadRequest, "The index would have too many fields"},
	InvalidFieldName:     {http.StatusBadRequest, "Not a name for a field"},
	TooDeep:              {http.StatusBadRequest, "The document is nested too deep"},
	InvalidSchema:        {http.StatusBadRequest, "The schema cannot be read"},
	NothingApplied:       {http.StatusBadRequest, "No document was applied"},
	InvalidBody:          {http.StatusBadRequest, "The body cannot be read"},
	NotFound:             {http.StatusNotFound, "No such path"},
	IndexNotFound:        {http.StatusNotFound, "No such index"},
	DocumentNotFound:     {http.StatusNotFound, "No such document"},
	JobNotFound:          {http.StatusNotFound, "No such job"},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, "The path does not take this method"},
	BodyTimeout:          {http.StatusRequestTimeout, "The body did not arrive in time"},
	SchemaConflict:       {http.StatusConflict, "The schema conflicts with the index"},
	CommitNeeded:         {http.StatusConflict, "Writes to the index show on commit"},
	IndexDeleted:         {http.StatusConflict, "The index was deleted meanwhile"},
	StaleMap:             {http.StatusConflict, "The shard map is out of date"},
	LoadUnderWay:         {http.StatusConflict, "The load is under way"},
	LoadMoved:            {http.StatusConflict, "The documents were placed otherwise when the load was begun"},
	JobConflict:          {http.StatusConflict, "The job cannot do this now"},
	BodyTooLarge:         {http.StatusRequestEntityTooLarge, "The body is too large"},
	DocumentTooLarge:     {http.StatusRequestEntityTooLarge, "The document is too large"},
	URITooLong:           {http.StatusRequestURITooLong, "The request target is too long"},
	HeadersTooLarge:      {http.StatusRequestHeaderFieldsTooLarge, "The headers are too large"},
	UnsupportedMediaType: {http.StatusUnsupportedMediaType, "The content type is not supported here"},
	UnsupportedEncoding:  {http.StatusUnsupportedMediaType, "The content encoding is not supported"},
	TooManySearches:      {http.StatusTooManyRequests, "Too many searches"},
	TooManyWrites:        {http.StatusTooManyRequests, "Too many writes"},
	TooManyBulks:         {http.StatusTooManyRequests, "Too many bulk loads"},
	RequestMemoryFull:    {http.StatusTooManyRequests, "No memory left for request bodies"},
	MemtableFull:         {http.StatusTooManyRequests, "No memory left for new documents"},
	IndexLimit:           {http.StatusTooManyRequests, "Too many indexes"},
	CallerGone:           {StatusCallerGone, "The caller hung up"},
	Internal:             {http.StatusInternalServerError, "Internal error"},
	WriteUncertain:       {http.StatusInternalServerError, "Whether the write was applied is not known"},
	NotReady:             {http.StatusServiceUnavailable, "The server is not ready"},
	IndexUnavailable:     {http.StatusServiceUnavailable, "The index cannot be used"},
	ReadOnly:             {http.StatusServiceUnavailable, "The index takes no writes"},
	ShuttingDown:         {http.StatusServiceUnavailable, "The server is shutting down"},
	Incomplete:           {http.StatusServiceUnavailable, "The answer would be incomplete"},
	GroupUnavailable:     {http.StatusServiceUnavailable, "No member of a shard group can be reached"},
	Timeout:              {http.StatusGatewayTimeout, "The time given to the request is over"},
	DiskFull:             {http.StatusInsufficientStorage, "The disk is full"},
}

// Problem is a reply that says why a call failed: RFC 9457, with members of our own. It is an error value.
type Problem struct {
	Code   Code
	Detail string // for a person, about this occurrence; never holds a path of the server or an error of its program
	Status int    // 0 means that of the code

	Field        string // the parameter, JSON member or field of the index that is meant
	Line         int    // of the body, from 1; 0 if it does not apply
	Column       int    // within Line, from 1; 0 if it does not apply
	Position     int    // byte offset within the query, line or body that is meant; see HasPosition
	HasPosition  bool
	Expected     string // what could stand at Position
	Limit        int64  // the limit that was hit; see HasLimit
	HasLimit     bool
	RetryAfterMS int64 // when to try again; 0 if it does not apply
	RequestID    string

	// Extra is appended as further members: a JSON fragment such as `"failed":3,"errors":[]`, without braces.
	Extra []byte

	// Cause is what the server's log says about it. It is never shown to callers.
	Cause error
}

// NewProblem returns a problem with a code and a detail.
func NewProblem(code Code, detail string) *Problem { return &Problem{Code: code, Detail: detail} }

// At sets the byte offset of the fault.
func (p *Problem) At(position int) *Problem {
	p.Position, p.HasPosition = position, true
	return p
}

// Within sets the limit that was hit.
func (p *Problem) Within(limit int64) *Problem {
	p.Limit, p.HasLimit = limit, true
	return p
}

// On sets the parameter, member or field that is meant.
func (p *Problem) On(field string) *Problem {
	p.Field = field
	return p
}

// HTTPStatus is the status of the reply.
func (p *Problem) HTTPStatus() int {
	if p.Status != 0 {
		return p.Status
	}
	if info, ok := Codes[p.Code]; ok {
		return info.Status
	}
	return http.StatusInternalServerError
}

// Error gives code and detail.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// Outcome is what a shard that answers with the problem comes to in the accounting of a search.
func (p *Problem) Outcome() serve.Outcome {
	switch status := p.HTTPStatus(); {
	case p.Code == Timeout, p.Code == BodyTimeout, p.Code == CallerGone:
		return serve.TimedOut
	case status == http.StatusTooManyRequests:
		return serve.Refused
	case status == http.StatusServiceUnavailable:
		return serve.Unavailable
	}
	return serve.Failed
}

// TypePrefix starts the type of every problem document; the code follows.
const TypePrefix = "urn:weft:problem:"

// AppendJSON appends the problem document.
func (p *Problem) AppendJSON(b []byte) []byte {
	title := Codes[p.Code].Title
	if title == "" {
		title = http.StatusText(p.HTTPStatus())
	}
	b = append(b, `{"type":`...)
	b = AppendString(b, TypePrefix+string(p.Code))
	b = append(b, `,"title":`...)
	b = AppendString(b, title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.HTTPStatus()), 10)
	if p.Detail != "" {
		b = append(b, `,"detail":`...)
		b = AppendString(b, p.Detail)
	}
	b = append(b, `,"code":`...)
	b = AppendString(b, string(p.Code))
	if p.Field != "" {
		b = append(b, `,"field":`...)
		b = AppendString(b, p.Field)
	}
	if p.Line > 0 {
		b = append(b, `,"line":`...)
		b = strconv.AppendInt(b, int64(p.Line), 10)
	}
	if p.Column > 0 {
		b = append(b, `,"column":`...)
		b = strconv.AppendInt(b, int64(p.Column), 10)
	}
	if p.HasPosition {
		b = append(b, `,"position":`...)
		b = strconv.AppendInt(b, int64(p.Position), 10)
	}
	if p.Expected != "" {
		b = append(b, `,"expected":`...)
		b = AppendString(b, p.Expected)
	}
	if p.HasLimit {
		b = append(b, `,"limit":`...)
		b = strconv.AppendInt(b, p.Limit, 10)
	}
	if p.RetryAfterMS > 0 {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, p.RetryAfterMS, 10)
	}
	if p.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = AppendString(b, p.RequestID)
	}
	if len(p.Extra) > 0 {
		b = append(b, ',')
		b = append(b, p.Extra...)
	}
	return append(b, '}')
}

// AppendString appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	out, err := jsontext.AppendQuote(b, s)
	if err != nil {
		// The only error is invalid UTF-8, and the replaced text was appended.
		return out
	}
	return out
}
