# frozen_string_literal: true

stops = {
  0 => ["The gate", "Where the road begins. Names are handed in here."],
  12 => ["Old mill", "Coffee, and a wheel that still turns."],
  31 => ["Long bridge", "Few stop on it; all slow down."],
  47 => ["Two towers", "One for looking out, one for being looked at."],
  58 => ["Orchard", "Apples in autumn, ladders all year."],
  73 => ["Quarry lake", "Deeper than it looks."],
  96 => ["Halfway house", "Half of the guests think that they have arrived."],
  110 => ["Windy gap", "Hold on to your hat."],
  128 => ["Salt works", "White heaps, white boots."],
  151 => ["Lantern inn", "The last light before the pass."],
  170 => ["The pass", "From here it is downhill."],
  199 => ["The shore", "Where the bytes are."]
}
stops.each do |kilometre, (name, description)|
  stop = Stop.create!(name: name, kilometre: kilometre, description: description)
  stop.notes.create!(text: "First!")
end
