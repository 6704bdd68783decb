# frozen_string_literal: true

# Random files of time zones, as the C library has them (RFC 8536), below `zoneinfo`. Some are
# wrong.
class ZoneFiles
  # The rules of the future, of which the first fits any zone.
  RULES = [
    "", "STD%s", "STD%sDST,M3.5.0,M10.5.0/3", "STD%sDST,M4.1.6/0,M9.2.1/24:30",
    "STD%sDST,J60/2,J300", "STD%sDST,59,299/1:30:10", "STD%sDST,0/0,J365/25",
    "STD%sDST-4:30,M12.1.0,M1.4.3/-1", "<+09>-9", "STD%sDST,M3.9"
  ].freeze

  def initialize(random, count)
    @random = random
    @count = count
  end

  # Returns the files: their texts by their names.
  def to_h
    zones = (0...@count).to_h { |number| ["zoneinfo/#{name(number)}", zone(number)] }
    zones.merge("zoneinfo/iso3166.tab" => "DE\tGermany\n",
                "zoneinfo/zone1970.tab" => "DE\t+5230+01322\tZone0\n")
  end

  private

  def name(number) = number < 2 || number.even? ? "Zone#{number}" : "Area/Zone#{number}"

  def zone(number)
    hours = @random.rand(-11..12)
    types = [[@random.rand(-40_000..40_000), 0, "LMT"], [hours * 3600, 0, "STD"],
             [(hours * 3600) + 3600, 1, "DST"], [(hours * 3600) + 1800, 1, "HALF"]]
    rule = RULES[number % RULES.size].sub("%s", (-hours).to_s)
    return file([], [types[1]], rule) if @random.rand(4).zero?

    file(transitions(types), types, rule)
  end

  # The times of changes, each with its type. The last one begins standard time, as the rules want.
  def transitions(types)
    at = -2_000_000_000
    all = Array.new(@random.rand(1..20)) do
      at += @random.rand(1..200_000_000)
      [at, @random.rand(types.size)]
    end
    all[-1][1] = 1
    # The beginning of time, as it was written before.
    all.unshift([-(2**59), 0]) if @random.rand(3).zero?
    all
  end

  def file(changes, types, rule)
    texts = types.map(&:last).uniq
    places = texts.to_h { |text| [text, texts.take(texts.index(text)).sum { |one| one.size + 1 }] }
    text = texts.map { |one| "#{one}\0" }.join
    content = changes.map(&:first).pack("q>*") + changes.map(&:last).pack("C*") +
              types.map { |seconds, dst, name| [seconds, dst, places[name]].pack("l>CC") }.join +
              text
    "#{header(0, 0, 0)}#{header(changes.size, types.size, text.size)}#{content}\n#{rule}\n".b
  end

  def header(changes, types, text)
    ["TZif", "2", 0, 0, 0, changes, types, text].pack("a4 a x15 N6")
  end
end
