// Where the parts of a timeline's canvas are, in CSS pixels.

export const GUTTER = 168; // the names of rows, to the left
export const RULER = 26; // the axis of time, on top
