# frozen_string_literal: true

# Makes random changes below the folder that is given, and says after each of them how Ruby requires
# and loads. The same number gives the same changes. Run by boot.rb, with a pack and without.

folder, seed, count = ARGV
random = Random.new(Integer(seed))
libraries = %w[one two].map { |name| "#{folder}/#{name}" }
libraries.each { |library| Dir.mkdir(library) unless File.directory?(library) }
$LOAD_PATH.unshift(*libraries)

NAMES = %w[a b c Mixed sub/a sub/b deep/er/c].freeze

def told(error)
  error.message.lines.first
end

# Makes a folder, and those above it.
def make(folder)
  return if File.directory?(folder)

  make(File.dirname(folder))
  Dir.mkdir(folder)
end

change = lambda do |number|
  path = "#{libraries.sample(random: random)}/#{NAMES.sample(random: random)}.rb"
  other = "#{libraries.sample(random: random)}/#{NAMES.sample(random: random)}.rb"
  above = [File.dirname(path), File.dirname(other)]
  case random.rand(8)
  when 0..3
    above.each { |name| make(name) }
    File.write(path, "$value = #{number}\n#{"# \n" * random.rand(3)}")
  when 4 then File.delete(path)
  when 5 then File.rename(path, other)
  when 6 then File.rename(File.dirname(path), "#{File.dirname(path)}.moved")
  when 7 then File.rename("#{File.dirname(path)}.moved", File.dirname(path))
  end
rescue SystemCallError => e
  puts "#{number}: #{e.class}"
end

look = lambda do |number|
  name = NAMES.sample(random: random)
  spellings = [name, name.upcase, name.capitalize, "#{name}.rb", name.tr("/", "\\")]
  name = spellings.sample(random: random)
  $value = nil
  way = random.rand(3)
  done =
    case way
    when 0 then require(name)
    when 1 then load(name.end_with?(".rb") ? name : "#{name}.rb")
    else require("#{libraries.sample(random: random)}/#{name}")
    end
  puts "#{number}: #{way} #{name} #{done} #{$value.inspect} #{$LOADED_FEATURES.last}"
  # Each feature can be required again.
  $LOADED_FEATURES.reject! { |feature| feature.start_with?(folder) } if random.rand(3).zero?
rescue LoadError => e
  puts "#{number}: #{way} #{name} #{told(e)}"
end

Integer(count).times do |number|
  change.call(number)
  look.call(number)
end
