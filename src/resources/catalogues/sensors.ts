/** The entries of `/sensors/`, suggestions in binary order (reference/resources.md#catalogues). */
export const sensorTypes: readonly string[] = [
  // air and climate
  `absolute_humidity air_temperature barometric_pressure dew_point heat_index relative_humidity surface_temperature
   temperature thermocouple`,
  // weather
  `cloud_height evapotranspiration hail leaf_wetness lightning rain_rate rainfall snow_depth solar_radiation
   sunshine_duration uv_index visibility weather wind_direction wind_gust wind_speed`,
  // gases and particles
  `air_quality_index ammonia co co2 dust formaldehyde hydrogen hydrogen_sulfide lpg methane no no2 oxygen ozone pm1
   pm10 pm2_5 pm4 radon refrigerant smoke so2 tvoc`,
  // water
  `ammonium chlorine chlorophyll conductivity dissolved_oxygen nitrate orp ph salinity tide_level
   total_dissolved_solids turbidity water_leak water_level water_pressure water_temperature wave_height`,
  // soil and plants
  `soil_conductivity soil_moisture soil_ph soil_temperature soil_water_potential stem_diameter`,
  // electricity and energy
  `active_power apparent_power battery_level current electric_energy frequency gas_volume heat_energy power_factor
   reactive_power resistance voltage water_volume`,
  // process
  `differential_pressure displacement fill_level flow_rate force fuel_level gas_flow pressure pulse_counter
   rotational_speed running_time strain thickness torque vacuum viscosity weight`,
  // movement and position
  `acceleration altitude angular_velocity distance heading inclination odometer position proximity shock speed
   vibration`,
  // light, sound, radiation
  `color illuminance infrared ionizing_radiation magnetic_field par_light sound_level`,
  // contacts, presence, safety
  `button door_contact flame glass_break motion occupancy parking_occupancy people_count rfid_tag tamper
   vehicle_count window_contact`,
  // body
  `blood_glucose blood_pressure body_temperature body_weight heart_rate oxygen_saturation respiration_rate
   step_count`,
  // diagnostics of the device
  `cpu_load memory_usage signal_strength uptime`,
]
  .flatMap((words) => words.split(/\s+/))
  .sort();
